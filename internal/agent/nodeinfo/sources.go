package nodeinfo

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/server"
)

// Read records what was read of a source.
func (s *Server) Read(snapshot manifest.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.sources, func(one server.Source) bool { return one.Name == snapshot.Source })
	if at < 0 {
		at = len(s.sources)
		s.sources = append(s.sources, server.Source{Name: snapshot.Source})
	}
	one, now := &s.sources[at], time.Now()
	if err := snapshot.Err; err != nil {
		if one.Error == "" {
			one.Since = now
		}
		one.Error = err.Error()
		return
	}
	one.Error, one.Since, one.Read = "", time.Time{}, now
	one.Revision = revisionOf(snapshot)
	one.Pods, one.Others = len(snapshot.Pods), len(snapshot.Objects)+len(snapshot.Workloads)
	one.Wrong = len(snapshot.Problems)
}

// revisionOf identifies the content of a source. Secrets are in it by name only: whoever sees the start of a hash of a
// weak one could guess it.
func revisionOf(s manifest.Snapshot) string {
	var names []string
	objects := slices.Clone(s.Objects)
	for i := range objects {
		if secret := objects[i].Secret; secret != nil {
			names = append(names, objects[i].Key().String())
			objects[i].Secret = nil
		}
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	for _, part := range []any{s.Pods, objects, s.Workloads, names} {
		if err := to.Encode(part); err != nil { // cannot happen: it was read as YAML
			return ""
		}
	}
	return manifest.Digest(text.Bytes())[:8]
}
