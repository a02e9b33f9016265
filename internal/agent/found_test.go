package agent

import (
	"context"
	"testing"
)

// A restart of podrun makes no pod unready: what it had found counts until something else is heard.
func TestReadinessOutlivesServe(t *testing.T) {
	s := newServing(t)
	asked := make(chan struct{}, 1)
	s.write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c\n    image: busybox\n"+
		"    startupProbe: {exec: {command: [started]}}\n    readinessProbe: {exec: {command: [ready]}, periodSeconds: 1, timeoutSeconds: 3600}\n")
	s.start()
	s.until("/pods", 200, `"phase":"Running"`, `"ready":true`, `"started":true`)
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.runtime.OnExec(func(ctx context.Context, _ string, cmd []string) (int, error) {
		if cmd[0] == "started" {
			t.Error("asked again whether it has started up")
		}
		asked <- struct{}{}
		<-ctx.Done() // no answer
		return 0, ctx.Err()
	})
	s.start()
	<-asked
	s.until("/readyz", 200)
	s.until("/pods", 200, `"phase":"Running"`, `"ready":true`, `"started":true`)
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}
