package flags

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
)

// toJournal reports whether w is systemd's journal: JOURNAL_STREAM names the device and inode of the
// standard error that the service manager gave to a service. They are compared, because a process
// that the service started inherits the variable, but may write elsewhere.
func toJournal(w io.Writer, stream string) bool {
	for {
		over, is := w.(interface{ Underlying() io.Writer })
		if !is {
			break
		}
		w = over.Underlying()
	}
	file, is := w.(*os.File)
	if !is || stream == "" {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	st, is := info.Sys().(*syscall.Stat_t)
	return is && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// journalHandler passes each record to the handler of its priority.
type journalHandler [4]slog.Handler

// newJournalHandler returns a handler for the journal, which adds a timestamp by itself and takes the
// priority from the beginning of each line. create creates a handler that writes to w.
func newJournalHandler(w io.Writer, create func(io.Writer) slog.Handler) journalHandler {
	var h journalHandler
	for i, priority := range []string{"<7>", "<6>", "<4>", "<3>"} {
		h[i] = create(prefixed{w, priority})
	}
	return h
}

func (h journalHandler) of(level slog.Level) slog.Handler {
	switch {
	case level < slog.LevelInfo:
		return h[0]
	case level < slog.LevelWarn:
		return h[1]
	case level < slog.LevelError:
		return h[2]
	}
	return h[3]
}

// Enabled implements slog.Handler.
func (h journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.of(level).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range h {
		h[i] = h[i].WithAttrs(slices.Clone(attrs))
	}
	return h
}

// WithGroup implements slog.Handler.
func (h journalHandler) WithGroup(name string) slog.Handler {
	for i := range h {
		h[i] = h[i].WithGroup(name)
	}
	return h
}

// prefixed writes a prefix before each line, in one write: other processes write to the journal, too.
type prefixed struct {
	w      io.Writer
	prefix string
}

// Write implements io.Writer. A handler of package slog writes each line with one call.
func (p prefixed) Write(line []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), line...))
	return max(n-len(p.prefix), 0), err
}
