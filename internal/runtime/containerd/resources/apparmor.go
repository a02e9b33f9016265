package resources

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/sys"
)

// appArmorDefault is the name under which podrun loads the AppArmor profile of RuntimeDefault.
const appArmorDefault = "podrun-default"

func unconfined() *v1.AppArmorProfile {
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
}

// appArmor returns the name of the container's AppArmor profile. If AppArmor is in use, a container
// that requests none gets the default profile, as in Kubernetes; if it is not in use, requesting a
// profile is an error.
func appArmor(profile *v1.AppArmorProfile, inUse bool) (string, error) {
	if !inUse {
		if profile == nil || profile.Type == v1.AppArmorProfileTypeUnconfined {
			return "", nil
		}
		return "", fmt.Errorf("appArmorProfile %s: AppArmor is not in use on this machine", profile.Type)
	}
	switch {
	case profile == nil || profile.Type == v1.AppArmorProfileTypeRuntimeDefault:
		if err := loadDefault(); err != nil {
			return "", fmt.Errorf("loading the AppArmor profile %s: %w", appArmorDefault, err)
		}
		return appArmorDefault, nil
	case profile.Type == v1.AppArmorProfileTypeLocalhost && profile.LocalhostProfile != nil:
		loaded, err := isLoaded(*profile.LocalhostProfile)
		if err != nil {
			return "", err
		}
		if !loaded {
			return "", fmt.Errorf("AppArmor profile %q is not loaded", *profile.LocalhostProfile)
		}
		return *profile.LocalhostProfile, nil
	default:
		return "unconfined", nil
	}
}

// isLoaded reports whether the kernel has an AppArmor profile of that name.
func isLoaded(name string) (bool, error) {
	loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles") // trusted: the kernel's
	if err != nil {
		return false, fmt.Errorf("listing the loaded AppArmor profiles: %w", err)
	}
	for line := range strings.Lines(string(loaded)) {
		if strings.HasPrefix(line, name+" (") {
			return true, nil
		}
	}
	return false, nil
}

// parserTimeout is how long AppArmor's parser may take for a profile.
const parserTimeout = time.Minute

// loadDefault loads the profile of RuntimeDefault, which is containerd's, unless the kernel has it. It makes no file of
// it: the machine's directory for temporary files may be full, or read-only.
func loadDefault() error {
	loaded, err := isLoaded(appArmorDefault)
	if err != nil || loaded {
		return err
	}
	profile, err := apparmor.DumpDefaultProfile(appArmorDefault)
	if err != nil {
		return err
	}
	// K: no cache, r: also if another process has loaded it meanwhile.
	parser := sys.Program{Name: "apparmor_parser", Options: []string{"-Kr"}, Stdin: []byte(profile)}
	_, err = parser.Run(context.Background(), parserTimeout)
	return err
}
