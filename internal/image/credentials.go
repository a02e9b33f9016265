// Package image provides the credentials for image registries ([Keyring]) and merges concurrent
// pulls of the same image into one ([PullGroup]). It implements no registry protocol and stores no
// images.
//
// Begin reading at [PullGroup] and [Keyring].
package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/docker/docker-credential-helpers/credentials"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/fileerror"
)

// Credentials is a docker config.json. It is read again for each pull, so that an edit takes effect
// at once.
type Credentials struct {
	// Path is the file; "" means no credentials.
	Path string
	// Optional means that a missing file is not an error.
	Optional bool
}

// helperLimit is how long a credential helper may take.
const helperLimit = time.Minute

// dockerHub is the name of Docker Hub in a config.json.
const dockerHub = "https://index.docker.io/v1/"

// config is the part of a config.json that podrun reads.
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

// candidates returns the file's credentials for a repository on a registry's host: those of its
// entries, then what the host's credential helper has. An error is a candidate's.
func (c Credentials) candidates(host, repository string) []candidate {
	if c.Path == "" {
		return nil
	}
	known, err := c.read()
	if errors.Is(err, fs.ErrNotExist) && c.Optional {
		return nil
	}
	if err != nil {
		return []candidate{{err: fmt.Errorf("reading the registries' credentials: %w", err)}}
	}
	var all []candidate
	for _, m := range find([]map[string]entry{known.Auths}, host, repository) {
		user, secret, err := m.credentials(m.key)
		if err != nil {
			err = fmt.Errorf("%s: %w", c.Path, err)
		}
		all = append(all, candidate{user: user, secret: secret, err: err})
	}
	if helper, server := known.helper(host); helper != "" {
		all = append(all, candidate{helper: helper, server: server})
	}
	return all
}

// Check returns an error if the file cannot be used: if it cannot be read, or is no docker config.json.
func (c Credentials) Check() error {
	_, err := c.read()
	return err
}

// read returns the content of the file. The errors name the file, and do not contain what is secret in it.
func (c Credentials) read() (config, error) {
	var known config
	text, err := sys.ReadSettings(c.Path)
	if err != nil {
		return known, fileerror.Named(err)
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return known, fmt.Errorf("%s: is not a docker config.json: %w", c.Path, errtext.JSON(text, err))
	}
	return known, nil
}

// helper returns the credential helper for a registry's host, and the name that the registry has for
// it; "" if there is none.
func (c config) helper(host string) (helper, server string) {
	server = host
	if isDockerHub(host) {
		server = dockerHub
	}
	return cmp.Or(c.CredHelpers[server], c.CredHelpers[host], c.CredsStore), server
}

func isDockerHub(host string) bool {
	return host == "registry-1.docker.io" || host == "index.docker.io" || host == "docker.io"
}

// credentials returns what the entry with the key says. As in the kubelet, its base64 may lack the padding
// (pkg/credentialprovider/config.go).
func (e entry) credentials(key string) (user, secret string, err error) {
	if e.IdentityToken != "" {
		return "", e.IdentityToken, nil
	}
	if e.Auth == "" {
		return e.Username, e.Password, nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
	if err != nil {
		return "", "", fmt.Errorf("auth of %s is not in base64", key)
	}
	user, secret, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", "", fmt.Errorf("auth of %s is not user:password", key)
	}
	return user, strings.TrimRight(secret, "\x00"), nil
}

// ask runs the credential helper docker-credential-<helper>, at most for limit.
func ask(ctx context.Context, limit time.Duration, helper, server string) (user, secret string, err error) {
	program := sys.Program{Name: "docker-credential-" + helper, Options: []string{"get"}, Stdin: []byte(server)}
	out, err := program.Run(ctx, limit)
	if err != nil && credentials.IsErrCredentialsNotFoundMessage(string(out.Stdout)) {
		return "", "", nil
	}
	if err != nil {
		if text := out.Text(); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return "", "", fmt.Errorf("asking %s for %s: %w", program.Name, server, err)
	}
	var got credentials.Credentials
	if err := json.NewDecoder(bytes.NewReader(out.Stdout)).Decode(&got); err != nil {
		return "", "", fmt.Errorf("the answer of %s for %s: %w", program.Name, server, errtext.JSON(out.Stdout, err))
	}
	if got.Username == "<token>" { // the mark of an identity token
		return "", got.Secret, nil
	}
	return got.Username, got.Secret, nil
}
