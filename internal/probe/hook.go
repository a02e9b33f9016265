package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/excerpt"
	"podrun.io/podrun/internal/sys/shortage"
)

// Hook runs a hook and returns when it has completed or ctx has ended. An HTTP hook succeeds with
// any response, whatever its status code, as in the kubelet.
func (p *Prober) Hook(ctx context.Context, t Target, hook *v1.LifecycleHandler) error {
	err := p.hookAny(ctx, &t, hook)
	if err == nil || len(err.Error()) <= mostAnswer {
		return err
	}
	return errors.New(excerpt.Of(err.Error(), mostAnswer))
}

func (p *Prober) hookAny(ctx context.Context, t *Target, hook *v1.LifecycleHandler) error {
	switch {
	case hook.Exec != nil:
		return p.hookExec(ctx, t, hook.Exec)
	case hook.HTTPGet != nil:
		return p.hookHTTP(ctx, t, hook.HTTPGet)
	case hook.Sleep != nil:
		if !pause(ctx, pod.Seconds(hook.Sleep.Seconds)) {
			return ctx.Err()
		}
		return nil
	default:
		return errors.New("the hook has no handler")
	}
}

// askAgain is the pause before a hook that could not be started is tried again.
const askAgain = time.Second

// hookExec tries again while the runtime is unavailable, which is not a failure of the hook.
func (p *Prober) hookExec(ctx context.Context, t *Target, action *v1.ExecAction) error {
	for {
		out := limitedBuffer{left: mostAnswer}
		code, err := p.exec.Exec(ctx, t.ID, action.Command, runtime.ExecIO{Stdout: &out, Stderr: &out})
		if errors.Is(err, runtime.ErrUnavailable) && pause(ctx, askAgain) {
			continue
		}
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, out.text())
		}
		if err != nil {
			return fmt.Errorf("command %q: %w", action.Command, err)
		}
		return nil
	}
}

func (p *Prober) hookHTTP(ctx context.Context, t *Target, action *v1.HTTPGetAction) error {
	request, err := newRequest(ctx, t, action, hookAgent)
	if err != nil {
		return err
	}
	err = p.fetch(request)
	if errors.Is(err, http.ErrSchemeMismatch) {
		// Early versions of Kubernetes used HTTP here whatever the manifest said, and Kubernetes
		// still falls back to it.
		request = request.Clone(ctx)
		request.URL.Scheme = "http"
		request.Header.Del("Authorization")
		err = p.fetch(request)
	}
	return err
}

func (p *Prober) fetch(request *http.Request) error {
	response, err := p.client().Do(request)
	for shortage.Is(err) && pause(request.Context(), askAgain) { // the container has not been asked
		response, err = p.client().Do(request)
	}
	if err != nil {
		return plain(err)
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, mostAnswer))
	return err
}
