package images

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/pod"
)

// askedStore has images with the digest sha256:old. Registries have what is in the map.
type askedStore struct {
	Remote
	images []string
	has    map[string]string
}

func (s askedStore) ListImages(context.Context) (all []pod.StoredImage, err error) {
	for _, name := range s.images {
		all = append(all, pod.StoredImage{Name: name, ID: "x@sha256:old0123456789abc", Used: strings.Contains(name, "web")})
	}
	return all, nil
}

func (s askedStore) RegistryDigest(_ context.Context, ref string, _ ...[]byte) (string, error) {
	if digest, is := s.has[ref]; is {
		return digest, nil
	}
	return "", errors.New("asking the registry for image " + ref + ": not found")
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	s := askedStore{
		images: []string{
			"docker.io/library/web:1", "hub.example/db:2", "hub.example/gone:1", "hub.example/same:1",
			"hub.example/web@sha256:0123456789012345678901234567890123456789012345678901234567890123", "no name",
		},
		has: map[string]string{
			"docker.io/library/web:1": "sha256:new0123456789", "hub.example/db:2": "sha256:newer01234567", "hub.example/same:1": "sha256:old0123456789abc",
		},
	}
	for _, x := range []struct {
		refs           string
		output         string
		out, said, err string
	}{
		{
			out: "IMAGE                     DIGEST         REGISTRY       USED\n" +
				"docker.io/library/web:1   old012345678   new012345678   yes\n" +
				"hub.example/db:2          old012345678   newer0123456   no\n",
			err: "asking the registry for image hub.example/gone:1: not found",
		},
		{refs: "web:1", output: "name", out: "docker.io/library/web:1\n"},
		{refs: "hub.example/same:1", said: "1 of 1 images asked for, none outdated\n"},
		{refs: "hub.example/gone:1", err: "asking the registry for image hub.example/gone:1: not found"},
		{refs: "hub.example/same:1", output: "json", out: "{\n    \"images\": []\n}\n"},
		{refs: "none:1 web:1", err: `image "none:1" is not present`},
	} {
		var out, said bytes.Buffer
		format, err := printers.ParseFormat(x.output)
		must(t, err)
		text := ""
		err = Outdated(t.Context(), cli.Streams{Out: &out, ErrOut: &said}, s, strings.Fields(x.refs), format)
		if err != nil {
			text = err.Error()
		}
		if out.String() != x.out || said.String() != x.said || text != x.err {
			t.Errorf("%s %s: %q, %q, %q", x.refs, x.output, out.String(), said.String(), text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Outdated(ctx, cli.Streams{}, s, nil, printers.Format{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
