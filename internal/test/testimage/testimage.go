// Package testimage builds small container images without a registry: from Debian's static busybox
// or from any static program. It writes archives that `podrun images load` reads. The same input
// results in the same bytes.
//
// It is for tests, the demo and the benchmark; podrun itself does not use it. It neither loads nor
// runs the images. Begin reading at Busybox.
package testimage

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Option changes the image that is built.
type Option func(*recipe)

// recipe is the input of an image build.
type recipe struct {
	config v1.Config
	files  []file
	docker bool
}

// Entrypoint sets the image's ENTRYPOINT.
func Entrypoint(args ...string) Option { return func(r *recipe) { r.config.Entrypoint = args } }

// Cmd sets the image's CMD.
func Cmd(args ...string) Option { return func(r *recipe) { r.config.Cmd = args } }

// Env adds environment entries of the form NAME=value.
func Env(entries ...string) Option {
	return func(r *recipe) { r.config.Env = append(r.config.Env, entries...) }
}

// User sets the image's USER: a name or number, with an optional group after a colon.
func User(user string) Option { return func(r *recipe) { r.config.User = user } }

// WorkingDir sets the image's WORKDIR, and creates the directory in the image.
func WorkingDir(dir string) Option {
	return func(r *recipe) {
		r.config.WorkingDir = dir
		r.files = append(r.files, file{path: dir, dir: true, mode: 0o755})
	}
}

// StopSignal sets the image's STOPSIGNAL.
func StopSignal(signal string) Option { return func(r *recipe) { r.config.StopSignal = signal } }

// File adds a file with the given permission bits; path is absolute in the image.
func File(path string, mode int64, data []byte) Option {
	return func(r *recipe) { r.files = append(r.files, file{path: path, mode: mode, data: data}) }
}

// Link adds a symbolic link; path is absolute in the image.
func Link(path, target string) Option {
	return func(r *recipe) { r.files = append(r.files, file{path: path, link: target}) }
}

// FIFO adds a named pipe; path is absolute in the image.
func FIFO(path string) Option {
	return func(r *recipe) { r.files = append(r.files, file{path: path, mode: 0o644, node: tar.TypeFifo}) }
}

// Device adds a character device; path is absolute in the image.
func Device(path string, major, minor int64) Option {
	return func(r *recipe) {
		r.files = append(r.files, file{path: path, mode: 0o666, node: tar.TypeChar, major: major, minor: minor})
	}
}

// DockerArchive selects the format of `docker save` instead of an OCI archive.
func DockerArchive() Option { return func(r *recipe) { r.docker = true } }

// Busybox builds an image of Debian's static busybox with all its applets in /bin and `sh` as CMD.
// It writes an archive into dir and returns the file's path, which is made from the last part of
// ref. ref should have a tag other than latest, because Kubernetes always pulls latest.
func Busybox(dir, ref string, opts ...Option) (string, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("finding busybox (on Debian: apt-get install busybox-static): %w", err)
	}
	applets, err := exec.Command(program, "--list").Output()
	if err != nil {
		return "", fmt.Errorf("listing busybox applets: %w", err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("reading busybox: %w", err)
	}
	r := newRecipe(Cmd("sh"), File("/bin/busybox", 0o755, data))
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			r.files = append(r.files, file{path: "/bin/" + applet, link: "busybox"})
		}
	}
	return r.write(dir, ref, opts)
}

// Program builds an image of one static program, at /bin/ under its own name and as ENTRYPOINT, and
// writes it as Busybox does.
func Program(dir, ref, program string, opts ...Option) (string, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("reading program: %w", err)
	}
	path := "/bin/" + filepath.Base(program)
	return newRecipe(Entrypoint(path), File(path, 0o755, data)).write(dir, ref, opts)
}

// newRecipe returns a recipe with the files and variables that every image has.
func newRecipe(opts ...Option) *recipe {
	r := &recipe{
		config: v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		files: []file{
			{path: "/tmp", dir: true, mode: 0o1777},
			{path: "/root", dir: true, mode: 0o700},
			{path: "/var", dir: true, mode: 0o755},
			{
				path: "/etc/passwd",
				mode: 0o644,
				data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
			},
			{path: "/etc/group", mode: 0o644, data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		},
	}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

// write applies opts and writes the archive.
func (r *recipe) write(dir, ref string, opts []Option) (string, error) {
	for _, opt := range opts {
		opt(r)
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", fmt.Errorf("parsing image reference: %w", err)
	}
	path := filepath.Join(dir, filepath.Base(tag.RepositoryStr())+"-"+tag.TagStr()+".tar")
	img, err := r.image()
	if err != nil {
		return "", fmt.Errorf("building image %s: %w", ref, err)
	}
	write := writeOCI
	if r.docker {
		write = writeDocker
	}
	if err := write(path, tag, img); err != nil {
		return "", fmt.Errorf("writing image %s: %w", ref, err)
	}
	return path, nil
}
