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
)

// mostAnswer is how much of an answer is kept, in bytes, as by the kubelet.
const mostAnswer = 10 << 10

// asker puts single questions.
type asker struct {
	exec      runtime.Execer
	slots     chan struct{} // bounds the commands that are being started
	transport *http.Transport
}

// ask puts a probe's question once, within its time-out.
func (k *asker) ask(ctx context.Context, t *Target, spec *v1.Probe) answer {
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
		return answer{unknown, "a probe without a question"}
	}
}

// askExec runs the command in the container. A command that cannot be started counts neither way, as in
// Kubernetes; one that takes too long has failed.
func (k *asker) askExec(ctx context.Context, t *Target, action *v1.ExecAction, timeout time.Duration) answer {
	leave, err := k.enter(ctx)
	if err != nil {
		return answer{unknown, err.Error()}
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := limitedBuffer{left: mostAnswer}
	code, err := k.exec.Exec(limited, t.ID, expand(action.Command, t.Container.Env), runtime.ExecIO{Stdout: &out, Stderr: &out})
	switch {
	case ctx.Err() != nil:
		return answer{unknown, ctx.Err().Error()}
	case errors.Is(err, runtime.ErrUnavailable): // also when the time has passed: nobody knows what it did
		return answer{unknown, err.Error()}
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return answer{failed, fmt.Sprintf("command %q timed out after %s", action.Command, timeout)}
	case err != nil:
		return answer{unknown, err.Error()}
	case code != 0:
		return answer{failed, fmt.Sprintf("exit code %d: %s", code, out.text())}
	}
	return answer{succeeded, out.text()}
}

// expand replaces $(NAME) in a probe's command by the values that the manifest itself gives, just as they are
// written there, as Kubernetes does for probes.
func expand(command []string, given []v1.EnvVar) []string {
	var vars []pod.Variable
	for _, e := range slices.Backward(given) { // the last one counts
		if e.ValueFrom == nil {
			vars = append(vars, pod.Variable{Name: e.Name, Value: e.Value})
		}
	}
	out := make([]string, len(command))
	for i, s := range command {
		out[i], _ = env.Expand(s, vars)
	}
	return out
}

// starting is for how long a command counts as being started: that is what costs. Those that merely take
// long do not keep others from being asked.
const starting = time.Second

// enter waits until a command may be started.
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
		return answer{failed, err.Error()}
	}
	conn.Close()
	return answer{outcome: succeeded}
}

// address is where the target is asked.
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

// portOf resolves a port that may be one of c's by name.
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

// dialer leaves nothing behind of a connection that was made only to be closed: with many probes, the
// ports of what lingers would run out.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			// The connection works without.
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// limitedBuffer keeps the beginning of what is written to it.
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
