package image

import (
	"regexp"
	"strings"
)

// anyURL matches the parts of a URL in a text that may be secret: user and password, and the query.
var anyURL = regexp.MustCompile(`(https?://)([^\s"'/?#]*@)?([^\s"'?]*)(\?[^\s"']*)?`)

// Masked returns the error of a request to a registry without what gives access to the registry's content: the users
// and passwords of the URLs in its text, and the values in their queries, such as the signature of a URL that a
// registry has redirected to. It still is err.
func Masked(err error) error {
	if err == nil {
		return nil
	}
	return &maskedError{err}
}

type maskedError struct{ err error }

func (e *maskedError) Error() string { return maskURLs(e.err.Error()) }
func (e *maskedError) Unwrap() error { return e.err }

func maskURLs(text string) string {
	const masked = "***"
	return anyURL.ReplaceAllStringFunc(text, func(found string) string {
		parts := anyURL.FindStringSubmatch(found)
		scheme, user, path, query := parts[1], parts[2], parts[3], parts[4]
		if user != "" {
			user = masked + "@"
		}
		bare := strings.TrimRight(query, ":;,.)") // what follows the URL in a sentence
		if len(bare) > 1 {
			values := strings.Split(bare[1:], "&")
			for i, v := range values {
				name, _, named := strings.Cut(v, "=")
				if values[i] = masked; named {
					values[i] = name + "=" + masked
				}
			}
			query = "?" + strings.Join(values, "&") + query[len(bare):]
		}
		return scheme + user + path + query
	})
}
