package embedded

import (
	"context"

	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// answers returns nil if a daemon answers on the socket, else the error. It makes one attempt.
func answers(ctx context.Context, socket string) error {
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = versionapi.NewVersionClient(conn).Version(ctx, &emptypb.Empty{})
	return err
}

// anyTask reports whether there is a task in any namespace, stopped or running: a client still has
// to read the exit code of a stopped one.
func anyTask(ctx context.Context, conn *grpc.ClientConn) (bool, error) {
	all, err := namespacesapi.NewNamespacesClient(conn).List(ctx, &namespacesapi.ListNamespacesRequest{})
	if err != nil {
		return false, err
	}
	for _, ns := range all.Namespaces {
		got, err := tasksapi.NewTasksClient(conn).
			List(namespaces.WithNamespace(ctx, ns.Name), &tasksapi.ListTasksRequest{})
		if err != nil {
			return false, err
		}
		if len(got.Tasks) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// awaitTaskGone returns when a task was removed or ctx ends. It may miss a task that is removed
// while it subscribes, so ctx needs a deadline.
func awaitTaskGone(ctx context.Context, conn *grpc.ClientConn) error {
	events, err := eventsapi.NewEventsClient(conn).Subscribe(ctx, &eventsapi.SubscribeRequest{
		Filters: []string{`topic=="/tasks/delete"`},
	})
	if err != nil {
		return err
	}
	_, err = events.Recv()
	return err
}
