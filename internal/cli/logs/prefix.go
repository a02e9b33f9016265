package logs

import (
	"bytes"
	"io"
	"sync"
)

// prefixer writes a label before each line. Prefixers that share mu write whole lines, so that the
// lines of several logs are not mixed.
type prefixer struct {
	to    io.Writer
	label string
	mu    *sync.Mutex
	rest  []byte // a line whose end has not been written yet
}

// longestLine is how much of a line without an end is kept until it is printed as a line.
const longestLine = 64 << 10

func (p *prefixer) Write(b []byte) (int, error) {
	var text []byte
	for line := range bytes.Lines(b) {
		p.rest = append(p.rest, line...)
		if !bytes.HasSuffix(line, []byte{'\n'}) {
			if len(p.rest) < longestLine {
				continue
			}
			p.rest = append(p.rest, '\n')
		}
		text = append(append(text, p.label...), p.rest...)
		p.rest = p.rest[:0]
	}
	if len(text) == 0 {
		return len(b), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.to.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// end writes a last line that has no line feed.
func (p *prefixer) end() error {
	if len(p.rest) == 0 {
		return nil
	}
	_, err := p.Write([]byte{'\n'})
	return err
}
