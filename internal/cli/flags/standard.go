package flags

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// maxStandard is the longest text of the standard log that podrun's log shows.
const maxStandard = 512

// RedirectStandardLog makes Go's standard log part of podrun's, at the level debug. Libraries write
// to it, net/http for example what it has read from a server that it did not ask: so a container that
// is probed decides about that text, which is therefore a value, and cut.
func RedirectStandardLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetPrefix("")
	log.SetOutput(standardLog{to})
}

type standardLog struct{ to *slog.Logger }

// Write implements io.Writer. A call has one message.
func (l standardLog) Write(message []byte) (int, error) {
	if l.to.Enabled(context.Background(), slog.LevelDebug) {
		text := bytes.TrimSpace(message)
		l.to.Debug("a library says something", "text", string(text[:min(len(text), maxStandard)]))
	}
	return len(message), nil
}
