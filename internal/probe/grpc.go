package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// askGRPC calls gRPC's standard health service, without TLS.
func askGRPC(ctx context.Context, t *Target, action *v1.GRPCAction) answer {
	if t.Address == "" {
		return answer{unknown, "the pod has no address"}
	}
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	address := net.JoinHostPort(t.Address, strconv.Itoa(int(action.Port)))
	var dialing atomic.Pointer[error] // the last error, which gRPC passes on as a text
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(probeAgent),
		grpc.WithMaxHeaderListSize(mostHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dialer().DialContext(ctx, "tcp", address)
			dialing.Store(&err)
			return conn, err
		}))
	if err != nil {
		return answer{unknown, err.Error()}
	}
	defer conn.Close()
	health, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch {
	case err != nil:
		outcome := failed
		if dialed := dialing.Load(); dialed != nil {
			outcome = failure(*dialed)
		}
		return answer{
			outcome,
			fmt.Sprintf("gRPC at %s: %s: %s", address, status.Code(err), status.Convert(err).Message()),
		}
	case health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return answer{failed, fmt.Sprintf("service unhealthy (responded with %q)", health.GetStatus())}
	}
	return answer{succeeded, ""}
}
