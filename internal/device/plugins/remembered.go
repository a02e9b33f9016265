package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/socket"
)

// remembered is how a plugin stands in Options.File, for the next podrun and for people.
type remembered struct {
	Socket    string                    `json:"socket"`
	Is        socket.Identity           `json:"is,omitzero"`
	Connected bool                      `json:"connected"`
	Devices   map[string]device.Plugged `json:"devices,omitempty"`
	// Lost is when the connection ended.
	Lost          time.Time `json:"lost,omitzero"`
	Registrations int       `json:"registrations,omitempty"`
	// Ended is that the plugin is not to be called any more.
	Ended bool `json:"ended,omitempty"`
}

// mostRemembered is the size in bytes of the largest Options.File that is read: a Manager writes none that is larger.
const mostRemembered = 32 << 20

// read reads Options.File.
func read(path string) (map[v1.ResourceName]remembered, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > mostRemembered {
		err = fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	var all map[v1.ResourceName]remembered
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// write writes Options.File.
func write(path string, all map[v1.ResourceName]remembered) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return sys.WriteFile(path, text, 0o600)
}

// unhealthy makes all devices unhealthy.
func unhealthy(all map[string]device.Plugged) {
	for id, d := range all {
		d.Healthy = false
		all[id] = d
	}
}

// Leave writes down that no plugin is connected: podrun runs without them. The next one with them calls them again.
func Leave(path string) error {
	all, err := read(path)
	if err != nil || len(all) == 0 {
		return err
	}
	for name, p := range all {
		if p.Connected {
			p.Connected, p.Lost = false, time.Now()
		}
		unhealthy(p.Devices)
		all[name] = p
	}
	return write(path, all)
}

// Read returns what a Manager with that Options.File knows, or knew last, by resource.
func Read(path string) ([]Plugin, error) {
	known, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("reading what is known of device plugins: %w", err)
	}
	var all []Plugin
	for _, name := range slices.Sorted(maps.Keys(known)) {
		p := known[name]
		all = append(all, Plugin{name, p.Socket, p.Connected, p.Devices, p.Lost, p.Registrations})
	}
	return all, nil
}

// Plugin is a resource's plugin, for people.
type Plugin struct {
	Resource  v1.ResourceName
	Socket    string
	Connected bool
	Devices   map[string]device.Plugged
	// Lost is when the connection ended; zero while there is one.
	Lost time.Time
	// Registrations is how often a plugin of the resource has registered since the resource is known.
	Registrations int
}
