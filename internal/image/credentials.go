// Package image knows who podrun is to a registry, and lets all who want the same image wait for one pull. It
// knows no registry's protocol and keeps no image.
package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"
)

// Credentials are a docker config.json. It is read anew for each pull, so that an edit counts at once.
type Credentials struct {
	// Path is the file; "" means none.
	Path string
	// Optional: a file that is not there is the same as none.
	Optional bool
}

// dockerHub is what docker calls its registry in config.json.
const dockerHub = "https://index.docker.io/v1/"

// config is what podrun reads of a config.json.
type config struct {
	Auths       map[string]entry  `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

type entry struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

// For returns the user and secret for a repository at a registry's host; both empty for a stranger, and
// only the user empty with an identity token. An entry for a path of the repository counts before one for
// the host, as in Kubernetes.
func (c Credentials) For(host, repository string) (user, secret string, err error) {
	if c.Path == "" {
		return "", "", nil
	}
	text, err := os.ReadFile(c.Path)
	if errors.Is(err, fs.ErrNotExist) && c.Optional {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the registries' credentials: %w", err)
	}
	var known config
	if err := json.Unmarshal(text, &known); err != nil {
		// Not with the text, which is secret.
		return "", "", fmt.Errorf("%s is no docker config.json: %w", c.Path, err)
	}
	if user, secret, err = known.of(host, repository); err != nil {
		return "", "", fmt.Errorf("%s: %w", c.Path, err)
	}
	return user, secret, nil
}

func (c config) of(host, repository string) (user, secret string, err error) {
	for _, key := range keys(host, repository) {
		for _, spelling := range []string{key, "https://" + key, "http://" + key, "https://" + key + "/v1/", "https://" + key + "/v2/"} {
			if e, ok := c.Auths[spelling]; ok && e != (entry{}) {
				return e.credentials(spelling)
			}
		}
	}
	server := host
	if isDockerHub(host) {
		server = dockerHub
	}
	helper := c.CredHelpers[server]
	if helper == "" {
		helper = c.CredHelpers[host]
	}
	if helper == "" {
		helper = c.CredsStore
	}
	if helper == "" {
		return "", "", nil
	}
	return ask(helper, server)
}

// keys are what an entry for the repository may be kept under, the longest first.
func keys(host, repository string) []string {
	var out []string
	for path := strings.Trim(repository, "/"); path != ""; {
		out = append(out, host+"/"+path)
		i := strings.LastIndexByte(path, '/')
		path = path[:max(i, 0)]
	}
	out = append(out, host)
	if isDockerHub(host) {
		out = append(out, "index.docker.io", "docker.io")
	}
	return out
}

func isDockerHub(host string) bool { return host == "registry-1.docker.io" || host == "docker.io" }

func (e entry) credentials(key string) (user, secret string, err error) {
	if e.IdentityToken != "" {
		return "", e.IdentityToken, nil
	}
	if e.Auth == "" {
		return e.Username, e.Password, nil
	}
	plain, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		return "", "", fmt.Errorf("auth of %s is not in base64", key)
	}
	user, secret, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", "", fmt.Errorf("auth of %s is not user:password", key)
	}
	return user, strings.TrimRight(secret, "\x00"), nil
}

// ask runs docker-credential-<helper>.
func ask(helper, server string) (user, secret string, err error) {
	got, err := client.Get(client.NewShellProgramFunc("docker-credential-"+helper), server)
	if credentials.IsErrCredentialsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("asking docker-credential-%s for %s: %w", helper, server, err)
	}
	if got.Username == "<token>" { // how helpers mark an identity token
		return "", got.Secret, nil
	}
	return got.Username, got.Secret, nil
}
