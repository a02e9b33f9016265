package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// hub is a registry with one image, that can go and come back at its address.
type hub struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
}

// newHub makes a registry that has the tuned image as team/tuned:1.
func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{t: t, handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), address: net.JoinHostPort("127.0.0.1", freePort(t))}
	h.up()
	t.Cleanup(h.down)
	image, err := tarball.ImageFromPath(setup.tuned, nil)
	must(t, err)
	h.push("tuned", image)
	return h
}

// push puts an image into the registry as team/NAME:1.
func (h *hub) push(name string, image v1.Image) {
	t := h.t
	t.Helper()
	repository := "http://" + h.address + "/v2/team/" + name + "/"
	blob := func(digest v1.Hash, content io.Reader) {
		t.Helper()
		begun, err := http.Post(repository+"blobs/uploads/", "", nil)
		must(t, err)
		begun.Body.Close()
		at, err := begun.Location()
		must(t, err)
		query := at.Query()
		query.Set("digest", digest.String())
		at.RawQuery = query.Encode()
		put(t, at.String(), "application/octet-stream", content)
	}
	config, err := image.RawConfigFile()
	must(t, err)
	digest, err := image.ConfigName()
	must(t, err)
	blob(digest, bytes.NewReader(config))
	layers, err := image.Layers()
	must(t, err)
	for _, layer := range layers {
		digest, err := layer.Digest()
		must(t, err)
		content, err := layer.Compressed()
		must(t, err)
		blob(digest, content)
	}
	text, err := image.RawManifest()
	must(t, err)
	kind, err := image.MediaType()
	must(t, err)
	put(t, repository+"manifests/1", string(kind), bytes.NewReader(text))
}

// put puts a part of an image into a registry.
func put(t *testing.T, where, kind string, content io.Reader) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPut, where, content)
	must(t, err)
	request.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("PUT %s: %s", where, answer.Status)
	}
}

func (h *hub) ref() string { return h.address + "/team/tuned:1" }

func (h *hub) up() {
	h.t.Helper()
	l, err := net.Listen("tcp", h.address)
	must(h.t, err)
	h.address, h.server = l.Addr().String(), &http.Server{Handler: h.handler}
	go h.server.Serve(l)
}

func (h *hub) down() {
	h.server.Close()
	silent(h.t, h.address)
}

// always is a pod that pulls its image at each start.
func (h *hub) always(pod string) string {
	return inContainer(strings.Replace(manifest(pod, "Always", forever), box, h.ref(), 1), "imagePullPolicy: Always")
}

func TestImagesCommands(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	pulled := strings.TrimSpace(n.ok("images", "pull", h.ref()))
	if !strings.HasPrefix(pulled, h.address+"/team/tuned@sha256:") {
		t.Errorf("pulled %q", pulled)
	}
	if got := n.run("images", "pull", h.address+"/team/none:1"); got.code != 1 || !strings.Contains(got.stderr, "not found") {
		t.Errorf("an image that is not there: %v", got)
	}
	if got := n.ok("images", "list"); !strings.Contains(got, h.ref()) || !strings.Contains(got, box) {
		t.Errorf("list: %s", got)
	}
	if r := n.once(manifest("a", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	if got := n.run("images", "rm", box); got.code != 1 || !strings.Contains(got.stderr, "is made of it") || !strings.Contains(got.stderr, "--force") {
		t.Errorf("rm of an image that is used: %v", got)
	}
	n.ok("images", "save", "-o", n.path("saved.tar"), h.ref())
	if got := n.ok("images", "rm", h.ref()); got != h.ref()+"\n" {
		t.Errorf("rm: %q", got)
	}
	if got := n.run("images", "save", h.ref()); got.code != 1 || !strings.Contains(got.stderr, "podrun images lists") {
		t.Errorf("save of an image that is not there: %v", got)
	}
	if got := n.ok("images", "load", n.path("saved.tar")); got != h.ref()+"\n" {
		t.Errorf("load: %q", got)
	}
}

// TestRegistryDown: a pod says in the registry's words why it waits, backs off, and heals.
func TestRegistryDown(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	h.down()
	n.write("a.yaml", h.always("a"))
	n.serve()
	n.awaitPod("a-n", "to say that its image cannot be pulled", waiting("ErrImagePull", h.ref(), "connection refused"))
	n.awaitPod("a-n", "to back off", waiting("ImagePullBackOff", `Back-off pulling image "`+h.ref()+`"`, "connection refused"))
	h.up()
	n.ready("a-n")
}

// TestPreferLocal: with the option an image that is present is as good as one from a registry that is down.
func TestPreferLocal(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	n.ok("images", "pull", h.ref())
	h.down()
	n.write("a.yaml", h.always("a"))
	n.serve("--prefer-local")
	n.ready("a-n")
}

// TestImageDir: archives in the image directory are loaded at the start, once, and a bad one harms nothing.
func TestImageDir(t *testing.T) {
	n := bareNode(t)
	must(t, os.MkdirAll(n.path("root", "images"), 0o755))
	data, err := os.ReadFile(setup.image)
	must(t, err)
	must(t, os.WriteFile(n.path("root", "images", "box.tar"), data, 0o644))
	must(t, os.WriteFile(n.path("root", "images", "bad.tar"), []byte("no archive"), 0o644))
	m := inContainer(manifest("a", "Never", "echo ran"), "imagePullPolicy: Never")
	for i, want := range []string{"loaded images", ""} {
		r := n.once(m, "--logs=all", "--log-level=info", "--rm")
		if r.code != 0 || !strings.Contains(r.stdout, "ran") {
			t.Fatal(r)
		}
		if want == "" && strings.Contains(r.stderr, "loaded images") || !strings.Contains(r.stderr, want) {
			t.Errorf("run %d: %v", i, r)
		}
		if !strings.Contains(r.stderr, "bad.tar") {
			t.Errorf("run %d says nothing of bad.tar: %v", i, r)
		}
	}
	n.ok("images", "rm", box)
	if r := n.once(m, "--logs=all", "--rm"); r.code != 0 || !strings.Contains(r.stdout, "ran") {
		t.Errorf("after the image was removed: %v", r)
	}
}

// TestImageDirTakesItsTime: the service manager hears what serve loads, and waits for it.
func TestImageDirTakesItsTime(t *testing.T) {
	n := bareNode(t)
	must(t, os.MkdirAll(n.path("root", "images"), 0o755))
	archive := n.path("root", "images", "box.tar")
	must(t, os.Symlink(setup.image, archive))
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: n.path("notify")})
	must(t, err)
	defer manager.Close()
	must(t, manager.SetReadDeadline(time.Now().Add(patience)))
	n.serveWith([]string{"NOTIFY_SOCKET=" + n.path("notify")})
	for _, want := range []string{
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=90000000\nSTATUS=Loading %q", archive), "READY=1\nSTATUS=Serving 0 pods",
	} {
		text := make([]byte, 4096)
		length, err := manager.Read(text)
		if got := string(text[:length]); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// private lets only the user me with the password pw in.
func private(open http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "pw" {
			w.Header().Set("WWW-Authenticate", `Basic realm="hub"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`, http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, r)
	})
}

// TestRegistryConfig: a private image comes with the credentials of a config.json.
func TestRegistryConfig(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	h.down()
	h.handler = private(h.handler)
	h.up()
	n.write("a.yaml", h.always("a"))
	config := n.path("config.json")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"wrong"}}}`, h.address), 0o600))
	n.serve("--registry-config=" + config)
	n.awaitPod("a-n", "to be refused", waiting("ErrImagePull", "401"))
	must(t, os.WriteFile(config, fmt.Appendf(nil, `{"auths":{%q:{"username":"me","password":"pw"}}}`, h.address), 0o600))
	n.ready("a-n")
}

// TestImagePullSecrets: a Secret of a manifest has the credentials; without it the pod says what is missing.
func TestImagePullSecrets(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	h.down()
	h.handler = private(h.handler)
	h.up()
	n.write("a.yaml", strings.Replace(h.always("a"), "spec:\n", "spec:\n  imagePullSecrets: [{name: hub}]\n", 1))
	n.serve()
	n.awaitPod("a-n", "to miss its secret", waiting("ErrImagePull", "authorization"))
	n.write("secret.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: hub}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n"+
		"  .dockerconfigjson: '{\"auths\":{%q:{\"username\":\"me\",\"password\":\"pw\"}}}'\n", h.address))
	n.ready("a-n")
}

// TestPullStops: a pull that hangs ends when its manifest changes, and keeps nothing from starting.
func TestPullStops(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	h.down()
	open := h.handler
	asked, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not a layer: another case's pods may have brought it into the same containerd.
		if strings.Contains(r.URL.Path, "/manifests/") {
			asked <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
			return
		}
		open.ServeHTTP(w, r)
	})
	h.up()
	heard := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatalf("waited in vain until the registry %s", what)
		}
	}
	n.write("a.yaml", h.always("a"))
	n.serve()
	heard("was asked for the image", asked)
	n.write("a.yaml", manifest("a", "Always", forever))
	heard("was asked no more", ended)
	n.ready("a-n")
}

// TestPullProgress: while a layer comes, get and describe tell how much of it is there.
func TestPullProgress(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	image, layer := bigImage(t, 4<<20)
	h.push("big", image)
	h.down()
	open, goOn := h.handler, make(chan struct{})
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layer) {
			select {
			case <-goOn:
			case <-r.Context().Done():
				return
			}
		}
		open.ServeHTTP(w, r)
	})
	h.up()
	ref := h.address + "/team/big:1"
	n.write("a.yaml", inContainer(strings.Replace(manifest("a", "Always", forever), box, ref, 1), "imagePullPolicy: Always"))
	n.serve()
	n.awaitPod("a-n", "to tell how far the pull is", waiting("ContainerCreating", `pulling image "`+ref+`": `, "1 of 2 layers"))
	if got := n.ok("get", "pods", "a"); !strings.Contains(got, "1 of 2 layers") {
		t.Errorf("get: %s", got)
	}
	if got := n.ok("describe", "pod", "a"); !strings.Contains(got, "1 of 2 layers") {
		t.Errorf("describe: %s", got)
	}
	close(goOn)
	n.ready("a-n")
}
