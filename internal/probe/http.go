package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The User-Agent headers of probes and hooks. They are the kubelet's, by which servers recognize
// its requests.
const (
	probeAgent = "kube-probe/1.36"
	hookAgent  = "kube-lifecycle/1.36"
)

const (
	// mostHeader is how many bytes of headers a server may send. Go's default is 10 MB, which a pod
	// could make podrun hold for each of many redirects.
	mostHeader = 64 << 10
	// mostLocation is the longest redirect that is followed.
	mostLocation = 2 << 10
)

// anyCertificate returns a TLS configuration that accepts any certificate.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a probe only checks that a server answers
}

// askHTTP succeeds with any status code from 200 to 399. It does not follow a redirect to another
// host or to a very long URL; any status code from 300 on is a success with a warning.
func (k *asker) askHTTP(ctx context.Context, t *Target, action *v1.HTTPGetAction) answer {
	request, err := newRequest(ctx, t, action, probeAgent)
	if err != nil {
		return answer{unknown, err.Error()}
	}
	response, err := k.client().Do(request)
	if err != nil {
		return answer{failure(err), plain(err).Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	switch {
	case err != nil:
		return answer{unknown, err.Error()} // the kubelet does not count such an answer, either
	case response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest:
		return answer{failed, fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode)}
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return answer{warned, "Probe terminated redirects, Response body: " + string(body)}
	}
	return answer{succeeded, string(body)}
}

// plain returns err, the error of a request, with a text for people: net/http formats an error that
// does not exist if the server writes before it is asked.
func plain(err error) error {
	const odd = "readLoopPeekFailLocked: %!w(<nil>)"
	if before, after, is := strings.Cut(err.Error(), odd); is {
		return errors.New(before + "the server answered before it was asked" + after)
	}
	return err
}

func (k *asker) client() *http.Client {
	return &http.Client{Transport: k.transport, CheckRedirect: sameHost}
}

// sameHost allows at most ten redirects, and none to another host or to a very long URL.
func sameHost(request *http.Request, via []*http.Request) error {
	switch {
	case request.URL.Hostname() != via[0].URL.Hostname(),
		len(request.Response.Header.Get("Location")) > mostLocation:
		return http.ErrUseLastResponse
	case len(via) >= 10:
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// newRequest returns the request that action describes.
func newRequest(ctx context.Context, t *Target, action *v1.HTTPGetAction, agent string) (*http.Request, error) {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return nil, err
	}
	where, err := url.Parse(action.Path)
	if err != nil {
		where = &url.URL{Path: action.Path} // used as a path without parsing
	}
	where.Scheme, where.Host = strings.ToLower(string(action.Scheme)), address
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range action.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
	}
	request.Host = request.Header.Get("Host")
	if _, given := request.Header["User-Agent"]; !given {
		request.Header.Set("User-Agent", agent)
	}
	if accept, given := request.Header["Accept"]; !given {
		request.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		request.Header.Del("Accept")
	}
	return request, nil
}
