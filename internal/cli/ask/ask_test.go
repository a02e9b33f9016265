package ask

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/test"
)

func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	var answer struct{ Path string }
	var none *NoServeError
	if err := Serve(t.Context(), socket, "/x?a=b", &answer); !errors.As(err, &none) || none.Socket != socket {
		t.Fatalf("without a serve: %v", err)
	}
	l, err := net.Listen("unix", socket)
	test.Must(t, err)
	served := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/x":
			_, _ = io.WriteString(w, `{"path": "`+r.URL.String()+`"}`)
		case "/bad":
			_, _ = io.WriteString(w, `{"path": `)
		default:
			http.NotFound(w, r)
		}
	})}
	go served.Serve(l)
	t.Cleanup(func() { served.Close() })
	if err := Serve(t.Context(), socket, "/x?a=b", &answer); err != nil || answer.Path != "/x?a=b" {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := Serve(t.Context(), socket, "/bad", &answer); err == nil || errors.As(err, &none) {
		t.Errorf("of half an answer: %v", err)
	}
	var hinted *cli.Error
	if err := Serve(t.Context(), socket, "/y", &answer); !errors.As(err, &hinted) || !strings.Contains(err.Error(), "404") {
		t.Errorf("of an older serve: %v", err)
	}
}
