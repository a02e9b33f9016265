package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// limit sets how many files this process may have open, and returns how many those were.
func limit(t *testing.T, files uint64) (was uint64) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	was, l.Cur = l.Cur, files
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	return was
}

// TestShortage: a container does not fail its probes because podrun can open no connections.
func TestShortage(t *testing.T) {
	var asked []*v1.Probe
	serving := func(handler func(*v1.Probe, int32), serve func(net.Listener) error) Target {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go serve(l)
		target, port := at(t, "tcp://"+l.Addr().String())
		spec := &v1.Probe{TimeoutSeconds: 10}
		handler(spec, port.IntVal)
		asked = append(asked, spec)
		return target
	}
	web := func(l net.Listener) error {
		return http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	state, server := health.NewServer(), grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	serving(func(p *v1.Probe, port int32) { *p = *httpProbe(intstr.FromInt32(port), "/") }, web)
	serving(func(p *v1.Probe, port int32) { p.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt32(port)} }, web)
	target := serving(func(p *v1.Probe, port int32) { p.GRPC = &v1.GRPCAction{Port: port} }, server.Serve)
	p := newProber(nil)
	was := limit(t, 3) // as many as this process has open, or fewer
	var short []answer
	for _, spec := range asked {
		short = append(short, p.ask(t.Context(), &target, spec))
	}
	limit(t, was)
	for i, spec := range asked {
		if a := p.ask(t.Context(), &target, spec); short[i].outcome != unknown || a.outcome != succeeded {
			t.Errorf("%+v, and then %+v", short[i], a)
		}
	}
}

// TestHooksWaitForTheEndOfAShortage: a hook is not failed by it either.
func TestHooksWaitForTheEndOfAShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, dials := newProber(nil), 0
		p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials < 3 {
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("epoll_ctl", syscall.ENOSPC)}
			}
			return nil, syscall.ECONNREFUSED
		}
		target, port := at(t, "http://192.0.2.1:80")
		hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: port, Path: "/", Scheme: v1.URISchemeHTTP}}
		if err := p.Hook(t.Context(), target, hook); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after %d dials: %v", dials, err)
		}
	})
}
