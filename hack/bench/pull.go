package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

const (
	pullLayers, pullLayerSize = 8, 8 << 20
	wantedPull                = 1.1
	pullRounds                = 7
	pullFloorNamespace        = "benchpull"
	pullRow                   = "image of 8 × 8 MB layers pulled, `ctr images pull` against `podrun images pull`"
)

// hub is an in-memory registry with one image of random layers. It counts the blobs that are
// fetched.
type hub struct {
	*httptest.Server
	ref   string
	blobs atomic.Int64
}

func newHub() (*hub, error) {
	h := &hub{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			h.blobs.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	h.ref = strings.TrimPrefix(h.URL, "http://") + "/bench/big:1"
	image, err := random.Image(pullLayerSize, pullLayers)
	if err == nil {
		err = h.push(image)
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("filling the registry: %w", err)
	}
	return h, nil
}

func (h *hub) push(image v1.Image) error {
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := h.send(
		http.MethodPost, "blobs/uploads/?digest="+digest.String(), "", bytes.NewReader(config),
	); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := h.send(http.MethodPost, "blobs/uploads/?digest="+digest.String(), "", content); err != nil {
			return err
		}
	}
	text, err := image.RawManifest()
	if err != nil {
		return err
	}
	kind, err := image.MediaType()
	if err != nil {
		return err
	}
	return h.send(http.MethodPut, "manifests/1", string(kind), bytes.NewReader(text))
}

func (h *hub) send(method, path, kind string, content io.Reader) error {
	r, err := http.NewRequest(method, h.URL+"/v2/bench/big/"+path, content)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return nil
}

// measurePulls compares `podrun images pull` with `ctr images pull`, as whole commands in
// alternation. Nothing of the image is present when a command starts.
func measurePulls(ctx context.Context, o options, on site) (p pair, err error) {
	ctr := filepath.Join(on.bin, "ctr")
	if _, err := os.Stat(ctr); err != nil {
		return p, nil // the Debian containerd is unpacked without ctr
	}
	h, err := newHub()
	if err != nil {
		return p, err
	}
	defer h.Close()
	pull := func(namespace, command string, args ...string) (time.Duration, error) {
		h.blobs.Store(0)
		began := time.Now()
		out, err := exec.CommandContext(ctx, command, args...).CombinedOutput()
		took := time.Since(began)
		if err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		if n := h.blobs.Load(); n != pullLayers+1 {
			return 0, fmt.Errorf("%s fetched %d blobs", command, n)
		}
		return took, on.client.ImageService().Delete(
			namespaces.WithNamespace(ctx, namespace), h.ref, images.SynchronousDelete(),
		)
	}
	for round := range pullRounds + 1 {
		floor, err := pull(pullFloorNamespace, ctr, "--address", on.address, "--namespace", pullFloorNamespace,
			"images", "pull", "--plain-http", h.ref)
		if err != nil {
			return p, err
		}
		mine, err := pull("podrun", o.podrun, "images", "pull",
			"--containerd-address", on.address, "--root-dir", filepath.Join(on.dir, "podrun"),
			"--run-dir", filepath.Join(on.dir, "run"), "--log-dir", filepath.Join(on.dir, "log"), h.ref)
		if err != nil {
			return p, err
		}
		if round > 0 { // the first round is a warm-up
			p.floor, p.podrun = append(p.floor, floor), append(p.podrun, mine)
		}
	}
	return p, nil
}
