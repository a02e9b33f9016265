package embedded

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

const (
	// maxLog is the size, in bytes, above which the daemon's log is emptied.
	maxLog      = 4 << 20
	logInterval = time.Minute
)

// noise are messages that containerd logs at every start and that have no meaning for the user.
var noise = map[string]bool{
	"failed check for fsverity support": true,
}

// captureLog sends containerd's warnings and errors to l and discards the rest. containerd's logger
// is global, so only the daemon's process may call this.
func captureLog(l *slog.Logger) {
	std := log.L.Logger
	std.SetLevel(logrus.WarnLevel)
	std.SetOutput(io.Discard)
	std.AddHook(forward{l})
}

// forward is a logrus hook that passes entries to a slog.Logger.
type forward struct{ to *slog.Logger }

func (forward) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel, logrus.FatalLevel, logrus.PanicLevel}
}

func (f forward) Fire(e *logrus.Entry) error {
	if noise[e.Message] {
		return nil
	}
	level := slog.LevelError
	if e.Level == logrus.WarnLevel {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, len(e.Data))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	f.to.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}

// limitLog truncates the log when it is too long, until ctx ends. The daemon's output is opened for
// appending, so it continues at the start of the emptied file.
func limitLog(ctx context.Context, path string) {
	for pause(ctx, logInterval) == nil {
		truncateLog(path)
	}
}

func truncateLog(path string) {
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		_ = os.Truncate(path, 0) // best effort: a long log does no harm
	}
}

// logTail returns the last lines of what was written after offset, at most n lines and 64 KiB.
func logTail(path string, offset int64, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		offset = max(offset, st.Size()-64<<10)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, offset, 64<<10))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
