package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/sync/errgroup"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// Remote is a Store that knows registries; see package pull.
type Remote interface {
	Store
	Puller
	RegistryDigest(ctx context.Context, ref string, logins ...[]byte) (string, error)
}

// The limits of requests to registries.
const (
	askedAtOnce = 4
	askTimeout  = 30 * time.Second // of each image
)

// Outdated prints those of the images refs, or of all images with a tag, whose tag refers to another image in the
// registry. It fails after that if a registry could not be asked.
func Outdated(ctx context.Context, streams cli.Streams, s Remote, refs []string, f printers.Format) error {
	images, err := tagged(ctx, s, refs)
	if err != nil {
		return err
	}
	outdated, errs := make([]*pod.OutdatedImage, len(images)), make([]error, len(images))
	var asking errgroup.Group
	asking.SetLimit(askedAtOnce)
	for i, image := range images {
		asking.Go(func() error {
			late := fmt.Errorf("asking the registry for image %s: no answer within %s",
				summary.PlainLine(image.Name), askTimeout)
			ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, late)
			defer cancel()
			now, err := s.RegistryDigest(ctx, image.Name)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = context.Cause(ctx)
			}
			errs[i] = err
			present := image.ID[strings.LastIndex(image.ID, "@")+1:]
			if err == nil && now != present {
				outdated[i] = &pod.OutdatedImage{
					Name: image.Name, Digest: present, RegistryDigest: now, Used: image.Used,
				}
			}
			return nil
		})
	}
	_ = asking.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	var found []pod.OutdatedImage
	for _, o := range outdated {
		if o != nil {
			found = append(found, *o)
		}
	}
	if f.Tabular() && len(found) == 0 && len(failed) == len(images) && len(failed) > 0 {
		return errors.Join(failed...) // nothing is known of any
	}
	if f.Tabular() && len(found) == 0 {
		fmt.Fprintf(streams.ErrOut, "%d of %d images asked for, none outdated\n", len(images)-len(failed), len(images))
	} else if err := printers.OutdatedImages(streams.Out, f, found); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// tagged returns the images refs, or all images whose names have a tag: what a digest names never changes.
func tagged(ctx context.Context, s Store, refs []string) ([]pod.StoredImage, error) {
	all, err := s.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	if len(refs) == 0 {
		return slices.DeleteFunc(all, func(i pod.StoredImage) bool {
			named, err := reference.ParseNormalizedNamed(i.Name)
			if err != nil {
				return true
			}
			_, byDigest := named.(reference.Digested)
			return byDigest || reference.IsNameOnly(named)
		}), nil
	}
	var found []pod.StoredImage
	var missing []error
	for _, ref := range refs {
		same := Same([]string{ref})
		i := slices.IndexFunc(all, func(i pod.StoredImage) bool { return same(i.Name) })
		if i < 0 {
			missing = append(missing, fmt.Errorf("image %q is not present", ref))
			continue
		}
		found = append(found, all[i])
	}
	return found, errors.Join(missing...)
}
