package image

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Keyring has the credentials for a pull from one repository: those of the pod, then those of the
// node. A pull that is refused can be tried with the next ones, as the kubelet does
// (pkg/kubelet/kuberuntime/kuberuntime_image.go). Its methods may be called concurrently.
type Keyring struct {
	logins     Logins
	node       Credentials
	repository string

	mu    sync.Mutex
	hosts map[string]*candidates
}

// candidates are the credentials for a registry's host, in the order in which they are tried. The
// first one is the present one.
type candidates []candidate

// candidate is what may be told to a registry: user and secret, or what a credential helper has for
// server.
type candidate struct {
	user, secret   string
	err            error
	helper, server string
}

// CredentialsError means that credentials which are configured cannot be read.
type CredentialsError struct{ Err error }

func (e *CredentialsError) Error() string { return e.Err.Error() }
func (e *CredentialsError) Unwrap() error { return e.Err }

// NewKeyring returns the credentials for a pull from the repository.
func NewKeyring(logins Logins, node Credentials, repository string) *Keyring {
	return &Keyring{logins: logins, node: node, repository: repository, hosts: map[string]*candidates{}}
}

// For returns the user and secret to tell a registry's host now; an error is a CredentialsError. Both
// are empty if there are no credentials; with an identity token only the user is empty.
func (k *Keyring) For(ctx context.Context, host string) (user, secret string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.hosts[host]
	if all == nil {
		all = &candidates{}
		for _, one := range append(k.logins.candidates(host, k.repository), k.node.candidates(host, k.repository)...) {
			if !slices.Contains(*all, one) {
				*all = append(*all, one)
			}
		}
		k.hosts[host] = all
	}
	if len(*all) == 0 {
		return "", "", nil
	}
	now := &(*all)[0]
	if now.helper != "" {
		user, secret, err := ask(ctx, helperLimit, now.helper, now.server)
		if err != nil {
			err = fmt.Errorf("%s: %w", k.node.Path, err)
		}
		*now = candidate{user: user, secret: secret, err: err}
	}
	if now.err != nil {
		return "", "", &CredentialsError{now.err}
	}
	return now.user, now.secret, nil
}

// Next lets For return the next credentials of each host that it was asked about. A host that has no
// more keeps its last ones. Next returns false if none has more.
func (k *Keyring) Next() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	more := false
	for _, all := range k.hosts {
		if len(*all) > 1 {
			*all, more = (*all)[1:], true
		}
	}
	return more
}
