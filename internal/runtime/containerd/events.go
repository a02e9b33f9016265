package containerd

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// topicProbe is the topic of podrun's own event, which shows that a subscription has begun.
const topicProbe = "/podrun/subscribed"

// EventStream converts containerd's events to wakeups. Its methods may be called concurrently.
type EventStream struct {
	client    *daemon.Client
	cache     *instance.Cache
	namespace string
	log       *slog.Logger
}

// Wakeups implements runtime.Notifier. When it returns, the subscription has begun: every later
// event causes a wakeup.
func (s *EventStream) Wakeups(ctx context.Context) (<-chan runtime.Wakeup, error) {
	ctx, cancel := context.WithCancel(s.client.Context(ctx))
	var filters []string
	for _, topic := range []string{
		"/tasks/start", "/tasks/exit", "/tasks/oom", "/tasks/delete", "/containers/delete", topicProbe,
	} {
		filters = append(filters, fmt.Sprintf("namespace==%q,topic==%q", s.namespace, topic))
	}
	stream, broken := s.client.EventService().Subscribe(ctx, filters...)
	if err := s.awaitProbe(ctx, stream, broken); err != nil {
		cancel()
		return nil, daemon.Mapped("subscribing to containerd's events", err)
	}
	wakeups := make(chan runtime.Wakeup)
	go func() {
		defer cancel()
		defer close(wakeups)
		for {
			select {
			case e := <-stream:
				wakeup, ok := s.wakeup(e)
				if !ok {
					continue
				}
				select {
				case wakeups <- wakeup:
				case <-ctx.Done():
					return
				}
			case err := <-broken:
				if ctx.Err() == nil {
					s.log.Debug("containerd's event stream ended", "err", err)
				}
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return wakeups, nil
}

// awaitProbe publishes an event repeatedly until the stream delivers it. A subscription gives no
// other sign that it has begun, and events from before its beginning are never delivered.
func (s *EventStream) awaitProbe(ctx context.Context, stream <-chan *events.Envelope, broken <-chan error) error {
	nonce := rand.Text()
	publish := func() error {
		return s.client.EventService().Publish(ctx, topicProbe, &eventtypes.ContainerDelete{ID: nonce})
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	if err := publish(); err != nil {
		return err
	}
	for {
		select {
		case e := <-stream:
			// Events before the probe need no wakeup: the caller inspects the pods after Wakeups
			// has returned.
			if e.Topic == topicProbe && eventID(e) == nonce {
				return nil
			}
			s.wakeup(e) // may be an OOM event, which the cache records
		case err := <-broken:
			return err
		case <-again.C:
			if err := publish(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wakeup converts an event to a wakeup; false if the event needs none.
func (s *EventStream) wakeup(e *events.Envelope) (runtime.Wakeup, bool) {
	id := eventID(e)
	if id == "" || e.Topic == topicProbe {
		return runtime.Wakeup{}, false
	}
	if e.Topic == "/tasks/oom" {
		s.cache.ObservedOOM(id)
	}
	key, ok := s.cache.Key(id)
	own := e.Topic == "/tasks/start" || e.Topic == "/tasks/delete" || e.Topic == "/containers/delete"
	return runtime.Wakeup{Key: key, All: !ok, At: e.Timestamp, Echo: own}, true
}

// eventID returns the ID of the container that the event is about; "" for an event of an exec'd
// process.
func eventID(e *events.Envelope) string {
	if e == nil || e.Event == nil {
		return ""
	}
	v, err := typeurl.UnmarshalAny(e.Event)
	if err != nil {
		return ""
	}
	switch e := v.(type) {
	case *eventtypes.TaskStart:
		return e.ContainerID
	case *eventtypes.TaskExit:
		if e.ID != e.ContainerID {
			return ""
		}
		return e.ContainerID
	case *eventtypes.TaskOOM:
		return e.ContainerID
	case *eventtypes.TaskDelete:
		return e.ContainerID
	case *eventtypes.ContainerDelete:
		return e.ID
	}
	return ""
}
