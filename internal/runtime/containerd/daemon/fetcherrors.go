package daemon

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

var (
	statusText = regexp.MustCompile(`unexpected status from \S+ request to \S+: (\d+)`)
	digestText = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
)

// RefusedError means that a registry refused a request, or that one of containerd's image verifiers
// rejected the image. The same request again would get the same answer.
type RefusedError struct{ text string }

func (e *RefusedError) Error() string { return e.text }

// CorruptError means that content cannot be completed: its digest is wrong, or the registry has no
// content after what was fetched.
type CorruptError struct {
	// Digests are those that the error names: of the content, and the one that it has instead.
	Digests []string
	Err     error
}

func (e *CorruptError) Error() string { return e.Err.Error() }
func (e *CorruptError) Unwrap() error { return e.Err }

// TransferError returns an error of containerd's transfer service as a RefusedError if it is one.
// The service gives a refusal no kind of its own, only a text.
func TransferError(err error) error {
	if err == nil || errdefs.IsNotFound(err) {
		return err
	}
	text := err.Error()
	status := httpStatus(text)
	// HTTP status 416 only means that the partially fetched content is corrupt.
	if status != 0 && status != http.StatusRequestedRangeNotSatisfiable || strings.Contains(text, "image verifier ") {
		// The text has the registry's answer twice: as the error and as what the error consists of.
		return &RefusedError{strings.Join(slices.Compact(strings.Split(text, "\n")), "\n")}
	}
	return err
}

// FetchError returns an error of fetching or unpacking an image as a CorruptError if it is one.
// Which content it is about is only in its text.
func FetchError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if !errdefs.IsFailedPrecondition(err) && httpStatus(text) != http.StatusRequestedRangeNotSatisfiable {
		return err
	}
	return &CorruptError{Digests: digestText.FindAllString(text, -1), Err: err}
}

// httpStatus returns the HTTP status of a registry's answer in the text of an error; 0 if there is
// none.
func httpStatus(text string) int {
	if found := statusText.FindStringSubmatch(text); found != nil {
		if status, err := strconv.Atoi(found[1]); err == nil {
			return status
		}
	}
	return 0
}

// Refusal is why a registry does not give an image.
type Refusal int

const (
	// NotRefused: a later attempt may succeed.
	NotRefused Refusal = iota
	// Denied: podrun may not have the image.
	Denied
	// Missing: there is no such image, or the registry does not show it to podrun.
	Missing
	// OtherPlatform: the image is only for other platforms than the machine's.
	OtherPlatform
)

// RefusalOf returns why a registry has refused an image.
func RefusalOf(err error) Refusal {
	if err == nil {
		return NotRefused
	}
	text := err.Error()
	switch status := httpStatus(text); {
	case isOtherPlatform(err):
		return OtherPlatform
	case status == http.StatusUnauthorized || status == http.StatusForbidden,
		strings.Contains(text, "pull access denied"):
		return Denied
	case status == http.StatusNotFound || status == http.StatusBadRequest, status == 0 && errdefs.IsNotFound(err):
		return Missing
	}
	return NotRefused
}

// RefusalFix returns what to change if a registry has answered that there is no such image or that
// podrun may not have it; "" if err is nothing of that, so that a later attempt may succeed.
func RefusalFix(err error) string {
	switch RefusalOf(err) {
	case Denied:
		return "give podrun credentials of the registry with --registry-config or imagePullSecrets"
	case Missing:
		return "check the image's name and tag"
	case OtherPlatform:
		return "use an image that is built for " + platforms.DefaultString()
	}
	return ""
}

// isOtherPlatform reports whether an image has nothing for the machine's platform. containerd's error
// for that is one for what is not found; the rest is in its text.
func isOtherPlatform(err error) bool {
	return errdefs.IsNotFound(err) && strings.Contains(err.Error(), "no match for platform in manifest")
}

// IsRefused reports whether a registry or containerd refused an image, or has no such image. An image
// that containerd's transfer service has not found for the machine's platform may be there for a
// compatible one, which the client accepts.
func IsRefused(err error) bool {
	var refused *RefusedError
	return errdefs.IsNotFound(err) && !isOtherPlatform(err) || errors.As(err, &refused)
}
