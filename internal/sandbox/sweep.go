package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"podrun.io/podrun/internal/host"
)

// Sweep releases what the network holds for sandboxes of which nothing is left here, as when their
// directory was removed by somebody else.
func (s *Store) Sweep(ctx context.Context) error {
	if err := s.sweep(ctx); err != nil {
		return fmt.Errorf("releasing what lost sandboxes held: %w", err)
	}
	return nil
}

func (s *Store) sweep(ctx context.Context) error {
	if s.network == nil {
		return nil
	}
	lost, err := s.lost()
	if err != nil || len(lost) == 0 {
		return err
	}
	// Nobody announces an id while this is held, so what is lost now stays lost.
	all, err := host.LockDir(s.dir, 0o711)
	if err != nil {
		return err
	}
	defer all.Unlock()
	if lost, err = s.lost(); err != nil {
		return err
	}
	for _, id := range lost {
		if err := s.network.Teardown(ctx, id); err != nil {
			return err
		}
		s.log.Info("released what a lost sandbox held", "sandbox", id)
	}
	_ = os.Remove(s.dir) // fails unless it is empty, as it should
	return nil
}

// lost are the ids that hold something and are not announced. An id is announced before it takes anything.
func (s *Store) lost() ([]string, error) {
	holders, err := s.network.Holders()
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, id := range holders {
		if _, err := os.Lstat(s.path(id) + intentSuffix); errors.Is(err, os.ErrNotExist) {
			lost = append(lost, id)
		}
	}
	return lost, nil
}
