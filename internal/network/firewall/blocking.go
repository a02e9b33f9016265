package firewall

import "errors"

// IsBlocking reports that an error of Accept says that a firewall drops packets, which Accept does not change. Nothing
// has failed then.
func IsBlocking(err error) bool {
	var blocked *blockingError
	return errors.As(err, &blocked)
}
