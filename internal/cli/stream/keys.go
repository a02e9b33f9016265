package stream

import (
	"fmt"

	"github.com/moby/term"
)

// ParseKeys parses the value of --detach-keys.
func ParseKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	keys, err := term.ToBytes(text)
	if err != nil {
		return nil, fmt.Errorf("--detach-keys %q: %w", text, err)
	}
	return keys, nil
}
