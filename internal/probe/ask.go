package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/excerpt"
	"podrun.io/podrun/internal/sys/shortage"
)

// mostAnswer is how many bytes of a response or of a command's output are read, as in the kubelet.
// The messages of answers and the errors of hooks have no more either, because errors of HTTP and
// gRPC repeat what the server sent, such as the URL of a redirect.
const mostAnswer = 10 << 10

// asker runs single probe requests.
type asker struct {
	exec      runtime.Execer
	slots     chan struct{} // limits how many commands are started at the same time
	transport *http.Transport
}

// ask runs a probe once, within its timeout.
func (k *asker) ask(ctx context.Context, t *Target, spec *v1.Probe) answer {
	a := k.askAny(ctx, t, spec)
	a.message = excerpt.Of(a.message, mostAnswer)
	return a
}

func (k *asker) askAny(ctx context.Context, t *Target, spec *v1.Probe) answer {
	timeout := max(time.Duration(spec.TimeoutSeconds)*time.Second, time.Second)
	if spec.Exec != nil {
		return k.askExec(ctx, t, spec.Exec, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case spec.HTTPGet != nil:
		return k.askHTTP(ctx, t, spec.HTTPGet)
	case spec.TCPSocket != nil:
		return askTCP(ctx, t, spec.TCPSocket)
	case spec.GRPC != nil:
		return askGRPC(ctx, t, spec.GRPC)
	default:
		return answer{unknown, "the probe has no handler"}
	}
}

// startLimit bounds the start of a command, as the kubelet's runtimeRequestTimeout.
const startLimit = 2 * time.Minute

// askExec runs the command in the container. If the command cannot be started, the outcome is
// unknown, as in Kubernetes; if it exceeds the timeout, the probe has failed. The timeout begins when
// the command runs, as with containerd's CRI (ExecSync).
func (k *asker) askExec(ctx context.Context, t *Target, action *v1.ExecAction, timeout time.Duration) answer {
	command, err := expand(action.Command, t.Container.Env)
	if err != nil {
		return answer{unknown, err.Error()}
	}
	leave, err := k.enter(ctx)
	if err != nil {
		return answer{unknown, err.Error()}
	}
	defer leave()
	limited, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	limit := time.AfterFunc(startLimit, func() { cut(context.DeadlineExceeded) })
	defer limit.Stop()
	timedOut := fmt.Sprintf("command %q could not be started within %s", action.Command, startLimit)
	started := func() {
		limit.Reset(timeout)
		timedOut = fmt.Sprintf("command %q timed out after %s", action.Command, timeout)
	}
	out := limitedBuffer{left: mostAnswer}
	code, err := k.exec.Exec(limited, t.ID, command, runtime.ExecIO{
		Stdout: &out, Stderr: &out, Started: started,
	})
	switch {
	case ctx.Err() != nil:
		return answer{unknown, ctx.Err().Error()}
	case errors.Is(err, runtime.ErrUnavailable): // also after the timeout: the command's effect is unknown
		return answer{unknown, err.Error()}
	case errors.Is(context.Cause(limited), context.DeadlineExceeded):
		return answer{failed, timedOut}
	case err != nil:
		return answer{unknown, err.Error()}
	case code != 0:
		return answer{failed, fmt.Sprintf("exit code %d: %s", code, out.text())}
	}
	return answer{succeeded, out.text()}
}

// expand replaces $(NAME) in a probe's command by the values that the manifest itself sets, by nothing if the value is
// from elsewhere, and without expanding references in those values, as Kubernetes does for probes.
func expand(command []string, given []v1.EnvVar) ([]string, error) {
	var vars []pod.Variable
	for _, e := range slices.Backward(given) { // the last definition counts
		vars = append(vars, pod.Variable{Name: e.Name, Value: e.Value})
	}
	return env.ExpandAll(command, vars)
}

// starting is how long a command counts as being started, which is the expensive part. After that a
// long-running command does not prevent others from being started.
const starting = time.Second

// enter waits for a free slot to start a command. leave releases the slot; it is also released
// after the time starting.
func (k *asker) enter(ctx context.Context) (leave func(), err error) {
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	once := sync.OnceFunc(func() { <-k.slots })
	early := time.AfterFunc(starting, once)
	return func() {
		early.Stop()
		once()
	}, nil
}

func askTCP(ctx context.Context, t *Target, action *v1.TCPSocketAction) answer {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return answer{unknown, err.Error()}
	}
	conn, err := dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return answer{failure(err), err.Error()}
	}
	conn.Close()
	return answer{outcome: succeeded}
}

// failure returns the outcome of a probe that failed with err: unknown if podrun could not ask because it was short of
// something, which says nothing about the container.
func failure(err error) outcome {
	if shortage.Is(err) {
		return unknown
	}
	return failed
}

// address returns the host and port to connect to: the pod's address unless the manifest names a
// host.
func (t *Target) address(host string, port intstr.IntOrString) (string, error) {
	number, err := portOf(t.Container, port)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = t.Address
	}
	if host == "" {
		return "", errors.New("the pod has no address")
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// portOf resolves a port number or the name of one of c's ports.
func portOf(c *v1.Container, port intstr.IntOrString) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if len(validation.IsValidPortNum(number)) > 0 {
		return 0, fmt.Errorf("container %s has no port %q", c.Name, port.String())
	}
	return number, nil
}

// dialer returns a dialer for connections that are closed right after use. They do not stay in
// TIME_WAIT, because with many probes the local ports would run out.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// The connection also works without this option.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
				&syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// limitedBuffer keeps the beginning of what is written to it and discards the rest.
type limitedBuffer struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	b.buf.Write(p[:n])
	b.left -= n
	return len(p), nil
}

func (b *limitedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.ToValidUTF8(bytes.TrimSpace(b.buf.Bytes()), []byte("�")))
}
