package registryhosts

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// configure returns the hosts for a registry. containerd's loader only logs that a hosts.toml file is
// invalid, and returns the registry itself, which the file may be there to avoid. So what it logs as
// an error is one.
func configure(ctx context.Context, o config.HostOptions, name string) ([]docker.RegistryHost, error) {
	var invalid failures
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	logger.AddHook(&invalid)
	hosts, err := config.ConfigureHosts(log.WithLogger(ctx, logrus.NewEntry(logger)), o)(name)
	if err == nil {
		err = invalid.first
	}
	if err != nil {
		return nil, fmt.Errorf("the settings of registry %s: %w", name, err)
	}
	return hosts, nil
}

// failures keeps the first error that is logged.
type failures struct{ first error }

// Levels implements logrus.Hook.
func (*failures) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel} }

// Fire implements logrus.Hook.
func (f *failures) Fire(e *logrus.Entry) error {
	if f.first != nil {
		return nil
	}
	f.first = errors.New(e.Message)
	if cause, ok := e.Data[logrus.ErrorKey].(error); ok {
		f.first = fmt.Errorf("%s: %w", e.Message, cause)
	}
	return nil
}
