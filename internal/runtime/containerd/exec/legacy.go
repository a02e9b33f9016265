package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/secretenv"
)

// legacyVariable is the environment variable in which a container of the former version names the
// file with its withheld values.
const legacyVariable = "PODRUN_WITHHELD"

// legacyWithheld converts the withheld values of a container that the former version started and
// that still runs: it stores them under the container's ID, where the stand-in reads them, and
// removes that version's variable from process, which is to run in the container. The container's
// labels determine the path of the file.
func (x *Execer) legacyWithheld(c containers.Container, process *specs.Process) error {
	i := instance.Identity(c)
	if err := layout.CheckUID(i.UID); err != nil {
		return err
	}
	dir := x.dirs.Revision(i.UID).Withheld()
	at := slices.Index(process.Env, legacyVariable+"="+filepath.Join(dir, i.Name))
	if at < 0 {
		return nil
	}
	var options runcoptions.Options
	if err := typeurl.UnmarshalTo(c.Runtime.Options, &options); err != nil ||
		layout.RootOfStandIn(options.BinaryName) != x.dirs.Root {
		return nil // an ordinary variable of the same name: nothing is withheld
	}
	// The former version's stand-in reads the variable only, so it is replaced by this version's.
	err := secretenv.Adopt(dir, i.Name, c.ID, func() error { return secretenv.Install(options.BinaryName, "") })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this version started the container
	}
	if err != nil {
		return fmt.Errorf("withholding variables of %s: %w", i.Name, err)
	}
	process.Env = slices.Delete(process.Env, at, at+1)
	return nil
}
