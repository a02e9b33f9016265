package sys

import "os"

// FirstPresent returns the first of the paths that exists; the first path if none does.
func FirstPresent(paths ...string) string {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return paths[0]
}
