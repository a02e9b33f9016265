package report

import (
	"fmt"
	"io"
	"time"

	"podrun.io/podrun/internal/status/summary"
)

// Groups has the marks by which a CI service folds parts of its log: kind is github, gitlab, or none. A
// nil *Groups has none.
type Groups struct {
	kind  string
	count int // of the groups that have begun
	// commands is true if the CI service executes commands in the log.
	commands bool
	written  shared // by all guards
}

// NewGroups returns the groups of a kind. "" is the kind of the CI service that environment variables
// describe, if any; getenv is os.Getenv.
func NewGroups(kind string, getenv func(string) string) (*Groups, error) {
	github := getenv("GITHUB_ACTIONS") == "true"
	// Azure Pipelines and TeamCity have commands, too.
	commands := github || getenv("TF_BUILD") != "" || getenv("TEAMCITY_VERSION") != ""
	switch kind {
	case "github", "gitlab", "none":
		return &Groups{kind: kind, commands: commands || kind == "github"}, nil
	case "":
	default:
		return nil, fmt.Errorf("--log-groups %q: must be github, gitlab or none", kind)
	}
	switch {
	case github:
		return &Groups{kind: "github", commands: true}, nil
	case getenv("GITLAB_CI") != "":
		return &Groups{kind: "gitlab", commands: commands}, nil
	}
	return &Groups{kind: "none", commands: commands}, nil
}

// lineEnd knows whether what is written to it ends with a line feed: a mark is one at the beginning of a line only.
type lineEnd struct {
	to   io.Writer
	last byte
}

// Write implements io.Writer.
func (l *lineEnd) Write(text []byte) (int, error) {
	if len(text) > 0 {
		l.last = text[len(text)-1]
	}
	return l.to.Write(text)
}

// missing returns the line feed that is missing, if one is.
func (l *lineEnd) missing() string {
	if l.last == 0 || l.last == '\n' {
		return ""
	}
	return "\n"
}

func (g *Groups) enabled() bool { return g != nil && (g.kind == "github" || g.kind == "gitlab") }

// began counts a group that has begun: each of GitLab's needs a name of its own.
func (g *Groups) began() { g.count++ }

// begin returns the mark before the lines of a group, and its title.
func (g *Groups) begin(title string) string {
	title = summary.PlainLine(title)
	if g.kind == "gitlab" {
		return fmt.Sprintf("\x1b[0Ksection_start:%d:podrun_%d\r\x1b[0K%s\n", time.Now().Unix(), g.count+1, title)
	}
	return "::group::" + title + "\n"
}

// end returns the mark after the lines of the group that has begun last.
func (g *Groups) end() string {
	if g.kind == "gitlab" {
		return fmt.Sprintf("\x1b[0Ksection_end:%d:podrun_%d\r\x1b[0K\n", time.Now().Unix(), g.count)
	}
	return "::endgroup::\n"
}
