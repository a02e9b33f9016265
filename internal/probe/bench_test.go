package probe

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/usage"
)

// BenchmarkAsk measures one request of each kind that podrun makes itself, including the server, by time and by the CPU
// time of all processes of the machine.
func BenchmarkAsk(b *testing.B) {
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()
	p := newProber(nil)
	for name, where := range map[string]string{"http": web.URL, "tcp": web.URL, "grpc": "grpc://" + listener.Addr().String()} {
		b.Run(name, func(b *testing.B) {
			target, port := at(b, where)
			spec := &v1.Probe{TimeoutSeconds: 10}
			switch name {
			case "http":
				spec = httpProbe(port, "/")
			case "tcp":
				spec.TCPSocket = &v1.TCPSocketAction{Port: port}
			case "grpc":
				spec.GRPC = &v1.GRPCAction{Port: port.IntVal}
			}
			was, err := usage.Machine()
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				if a := p.ask(b.Context(), &target, spec); a.outcome != succeeded {
					b.Fatal(a)
				}
			}
			now, err := usage.Machine()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric((now-was).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
