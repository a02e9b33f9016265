package image

import (
	"errors"
	"io/fs"
	"testing"
)

func TestMasked(t *testing.T) {
	t.Parallel()
	const asked = "failed to copy: unexpected status from GET request to "
	for text, want := range map[string]string{
		asked + "https://cdn/v2/a/blobs/sha256:0a?X-Amz-Signature=f00d&X-Amz-Expires=9: 403 Forbidden": asked +
			"https://cdn/v2/a/blobs/sha256:0a?X-Amz-Signature=***&X-Amz-Expires=***: 403 Forbidden",
		`Get "https://u:p@cdn/a?sig=f00d%2B==": EOF; Get "http://b/c?d": EOF`: `Get "https://***@cdn/a?sig=***": EOF; Get "http://b/c?***": EOF`,
		asked + "http://hub/v2/a/manifests/1@2: 404 Not Found":                asked + "http://hub/v2/a/manifests/1@2: 404 Not Found",
		"http://a@b@c?x=y":   "http://***@c?x=***",
		"http://a?b=c?d=e&f": "http://a?b=***&***",
		"what?a=b":           "what?a=b",
		"is it http://a/?":   "is it http://a/?",
	} {
		err := Masked(&fs.PathError{Op: "pull", Path: text, Err: fs.ErrNotExist})
		if err.Error() != "pull "+want+": file does not exist" {
			t.Errorf("%s: %v", text, err)
		}
		var kind *fs.PathError
		if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &kind) {
			t.Errorf("%s: its kind is lost", text)
		}
	}
	if err := Masked(nil); err != nil {
		t.Error(err)
	}
}
