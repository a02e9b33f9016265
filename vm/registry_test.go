package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"podrun.io/podrun/internal/test/testimage"
)

// registryAddress is where the guest's registry listens while a pull needs it.
const registryAddress = "127.0.0.1:5000"

// fetched is the reference of an image in the guest's registry.
func fetched(number int) string { return fmt.Sprintf("%s/fetched:%d", registryAddress, number) }

// serveRegistry runs a command, in the guest, while there is a registry with an image of that reference. Each has other
// data, in /data, and in /sum what sha256sum says of them.
func serveRegistry(ref string, command []string) error {
	dir, err := os.MkdirTemp("/run", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(ref))).Read(data) // it never fails
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
	tar, err := testimage.Busybox(dir, ref, testimage.DockerArchive(),
		testimage.File("/data", 0o644, data), testimage.File("/sum", 0o644, []byte(sum)))
	if err != nil {
		return err
	}
	image, err := tarball.ImageFromPath(tar, nil)
	if err != nil {
		return err
	}
	contents, err := contentsOf(image)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", registryAddress)
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() { _ = http.Serve(listener, contents) }() //nolint:gosec // a test's
	c := exec.CommandContext(context.Background(), command[0], command[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// contents are what a registry has of one image: by digest, and the manifest as any tag.
type contents map[string]content

type content struct {
	kind string
	data []byte
}

func contentsOf(image v1.Image) (contents, error) {
	kind, err := image.MediaType()
	if err != nil {
		return nil, err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return nil, err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	all := contents{}
	add := func(kind string, data []byte) {
		all[fmt.Sprintf("sha256:%x", sha256.Sum256(data))] = content{kind, data}
	}
	add(string(kind), manifest)
	add("application/octet-stream", config)
	all["manifest"] = content{string(kind), manifest}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		from, err := l.Compressed()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(from)
		if err := errors.Join(err, from.Close()); err != nil {
			return nil, err
		}
		add("application/octet-stream", data)
	}
	return all, nil
}

// ServeHTTP implements http.Handler.
func (c contents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	is, ok := c[path.Base(r.URL.Path)]
	if !ok && path.Base(path.Dir(r.URL.Path)) == "manifests" {
		is, ok = c["manifest"]
	}
	if !ok && r.URL.Path != "/v2/" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", is.kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(is.data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(is.data) // the client sees that it is too short
	}
}

// fetching is a script that runs a command while there is a registry with the image of that number.
func fetching(number int, command string) string {
	return "PODRUN_VM_REGISTRY=" + fetched(number) + " /vm/agent " + command
}
