package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
)

// Settings are the flags by which a serve reads its manifests, each with its values. serve saves them for the commands
// that say what serve does or would do. They outlive serve, but not the boot.
type Settings map[string][]string

// Save saves the settings of this serve.
func (s Settings) Save(dirs layout.Dirs) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = sys.WriteFile(dirs.StatusFiles().Serve(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving the settings of serve: %w", err)
	}
	return nil
}

// ReadSettings returns the settings of the serve that runs, or else of the last one; nil if none has run.
func ReadSettings(dirs layout.Dirs) (Settings, error) {
	text, err := os.ReadFile(dirs.StatusFiles().Serve())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s Settings
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the settings of serve: %w", err)
	}
	return s, nil
}
