package probe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// redirecting serves HTTP: a request for / is redirected to the location, all others get garbage.
func redirecting(t *testing.T, location []byte) (Target, intstr.IntOrString) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				request, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				if request.URL.Path != "/" {
					_, _ = c.Write([]byte("garbage\r\n\r\n"))
					return
				}
				for _, part := range [][]byte{[]byte("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "), location, []byte("\r\n\r\n")} {
					_, _ = c.Write(part)
				}
			}()
		}
	}()
	return at(t, "http://"+listener.Addr().String())
}

// TestLongRedirects: a server makes podrun neither hold nor report a URL of any length.
func TestLongRedirects(t *testing.T) {
	for _, c := range []struct {
		size int
		want outcome
	}{
		{1 << 10, failed}, {mostLocation, failed}, {mostLocation + 1, warned}, {60 << 10, warned}, {mostHeader, failed}, {9900 << 10, failed},
	} {
		location := append([]byte("/"), bytes.Repeat([]byte{0xff}, c.size-1)...)
		target, port := redirecting(t, location)
		p := newProber(nil)
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		spec := httpProbe(port, "/")
		spec.TimeoutSeconds = 20
		a := p.ask(t.Context(), &target, spec)
		err := p.Hook(t.Context(), target, &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: port, Path: "/", Scheme: v1.URISchemeHTTP}})
		goruntime.ReadMemStats(&after)
		if a.outcome != c.want || (err != nil) != (c.want == failed) {
			t.Errorf("%d bytes: %s %.200q, hook: %.200v", c.size, a.outcome, a.message, err)
		}
		if len(a.message) > mostAnswer || err != nil && len(err.Error()) > mostAnswer {
			t.Errorf("%d bytes: a message of %d, hook: %d", c.size, len(a.message), len(fmt.Sprint(err)))
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 10; used > 4<<10 {
			t.Errorf("%d bytes: %d KiB of memory", c.size, used)
		}
	}
}

// longStatus is gRPC's health service with a long message.
type longStatus struct {
	grpc_health_v1.UnimplementedHealthServer
	size int
}

func (s longStatus) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return nil, status.Error(codes.Unknown, strings.Repeat("\xff", s.size))
}

// TestLongStatus: nor is the message of a gRPC server passed on whatever its length. One longer than the headers may be is not read.
func TestLongStatus(t *testing.T) {
	for _, size := range []int{30 << 10, 300 << 10} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, longStatus{size: size})
		go server.Serve(listener)
		t.Cleanup(server.Stop)
		target, port := at(t, "grpc://"+listener.Addr().String())
		spec := &v1.Probe{TimeoutSeconds: 5}
		spec.GRPC = &v1.GRPCAction{Port: port.IntVal}
		a := newProber(nil).ask(t.Context(), &target, spec)
		if a.outcome != failed || len(a.message) > mostAnswer || size > mostHeader && len(a.message) > 500 {
			t.Errorf("%d bytes: %s, %d bytes: %.200q", size, a.outcome, len(a.message), a.message)
		}
	}
}

// TestLongOutput: what a command printed has at most the same length with what is added to it.
func TestLongOutput(t *testing.T) {
	p := newProber(func(_ context.Context, _ []string, out io.Writer) (int, error) {
		_, err := out.Write(bytes.Repeat([]byte("x"), 1<<20))
		return 1, err
	})
	target := Target{Container: &v1.Container{}}
	action := &v1.ExecAction{Command: []string{"a"}}
	spec := &v1.Probe{TimeoutSeconds: 5}
	spec.Exec = action
	a := p.ask(t.Context(), &target, spec)
	err := p.Hook(t.Context(), target, &v1.LifecycleHandler{Exec: action})
	if a.outcome != failed || len(a.message) > mostAnswer || err == nil || len(err.Error()) > mostAnswer {
		t.Errorf("%s, %d bytes: %.100q; hook: %.100v", a.outcome, len(a.message), a.message, err)
	}
}
