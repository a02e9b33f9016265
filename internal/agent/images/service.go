package images

import (
	"context"
	"sync"

	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
)

// Service is what serve does about images, and about the disks that they fill.
type Service struct {
	Keeper   *gc.Keeper // nil: nothing is removed
	Archives Archives
	Updater  *Updater
}

// Want sets what is desired.
func (s *Service) Want(d manifest.Desired) {
	if s.Keeper != nil {
		s.Keeper.Want(s.Archives.Needed(d))
		s.Keeper.Hold(Held(d))
	}
	s.Updater.Want(d)
}

// Run removes unused images and updates others until ctx ends, and returns ctx's error.
func (s *Service) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if s.Keeper != nil {
		running.Go(func() { _ = s.Keeper.Run(ctx) })
	}
	return s.Updater.Run(ctx)
}
