package socket

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestErrorsOfCalls: an error is said in plain words, keeps its code, and is cut.
func TestErrorsOfCalls(t *testing.T) {
	dir := t.TempDir()
	var say error
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return say }))
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	call := func(name string) error {
		conn, err := Client(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.Invoke(context.Background(), "/x/Y", &emptypb.Empty{}, &emptypb.Empty{})
	}
	for _, c := range []struct {
		say  error
		code codes.Code
		text string
	}{
		{status.Error(codes.NotFound, "no volume v"), codes.NotFound, "NotFound: no volume v"},
		{status.Error(codes.Internal, ""), codes.Internal, "Internal"},
		{status.Error(codes.Unknown, "it is broken"), codes.Unknown, "Unknown: it is broken"},
	} {
		say = c.say
		if err := call("s"); status.Code(err) != c.code || err.Error() != c.text {
			t.Errorf("%v, %v, want %s", status.Code(err), err, c.text)
		}
	}
	say = status.Error(codes.Internal, strings.Repeat("x", 1<<20))
	if err := call("s"); len(err.Error()) > 2*mostText {
		t.Errorf("%d bytes", len(err.Error()))
	}
	err = call("none")
	want := "it cannot be reached: dial unix " + filepath.Join(dir, "none") + ": connect: no such file or directory"
	if status.Code(err) != codes.Unavailable || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
