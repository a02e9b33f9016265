package sys

import "os"

// FirstPresent returns the first of the paths at which there is anything; the first one if there is nothing at any.
func FirstPresent(paths ...string) string {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return paths[0]
}
