package report

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// executed returns the commands in an output that the runners of GitHub, Azure Pipelines and TeamCity execute. The
// reader of the first ends a line at a carriage return, too.
func executed(output string) (commands []string) {
	for _, line := range strings.FieldsFunc(output, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") ||
			strings.Contains(line, "##vso[") || strings.Contains(line, "##teamcity[") {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	return commands
}

// TestNoCommandsOfContainers: nothing that a container writes, in whatever parts it is written, is a command to the CI
// service. All else is printed as it is.
func TestNoCommandsOfContainers(t *testing.T) {
	t.Parallel()
	groups, err := NewGroups("none", func(name string) string { return map[string]string{"GITHUB_ACTIONS": "true"}[name] })
	must(t, err)
	const harmless = "a::b\n : :\n:\n[#[ #\r\n##\n[\nx ::\n"
	text := harmless + "::set-output name=a::b\n \t\u00a0\u2003\ufeff::endgroup::\r::error::\n:::\nx##[error]y\n:\n::x\n###[a]\r\n" +
		"x##vso[task.setvariable variable=a]b\n##teamcity[setParameter name='a' value='b']\n::"
	for part := 1; part <= len(text); part++ {
		var out strings.Builder
		w := groups.Guard(&out)
		for rest := text; rest != ""; rest = rest[min(part, len(rest)):] {
			_, err := w.Write([]byte(rest[:min(part, len(rest))]))
			must(t, err)
		}
		if got := executed(out.String()); got != nil || strings.ReplaceAll(out.String(), "\\", "") != text ||
			!strings.HasPrefix(out.String(), harmless) {
			t.Fatalf("in parts of %d: %q, of %q", part, got, out.String())
		}
	}
	if other, err := NewGroups("gitlab", func(string) string { return "" }); err != nil || other.Guard(os.Stdout) != os.Stdout {
		t.Errorf("another service: %v", err)
	}
}

// TestNoCommandsInLogs: the only commands in the output of once are podrun's own, however logs are printed.
func TestNoCommandsInLogs(t *testing.T) {
	t.Parallel()
	const want = "::group::job/c ::endgroup::"
	groups, err := NewGroups("github", func(string) string { return "" })
	must(t, err)
	var streamed strings.Builder
	w := &streamWriter{stream: &Stream{Out: &streamed, Groups: groups}, to: &streamed, name: "job/c", label: "job/c | "}
	_, err = w.Write([]byte("::add-mask::e\n10%\r::add-mask::e\n::stop"))
	must(t, err)
	w.end()
	w.stream.endGroup("job/c")
	if got := strings.Join(executed(streamed.String()), " "); got != want {
		t.Errorf("streamed: %q of %q", got, streamed.String())
	}
	const at = "2026-01-02T15:04:05.000000000Z "
	p := notDonePod("job", v1.ContainerStatus{State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}})
	var out strings.Builder
	l := &Logs{Out: &out, ErrOut: &out, Groups: groups, Dirs: layout.Dirs{Log: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
	path := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", 0)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	text := at + "stdout F ::add-mask::e\n" + at + "stderr F ::endgroup::\n" + at + "stdout P no end"
	must(t, os.WriteFile(path, []byte(text), 0o600))
	l.Select(Run{Done: result.Done, Pods: []*v1.Pod{p}}, "failed")
	l.Print()
	if got := strings.Join(executed(out.String()), " "); got != want {
		t.Errorf("at the end: %q of %q", got, out.String())
	}
}

// TestServicesWithCommands: whatever groups are printed, what containers write is no command to a service that has some.
func TestServicesWithCommands(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{"GITHUB_ACTIONS": "true", "TF_BUILD": "True", "TEAMCITY_VERSION": "2025.11"} {
		for _, kind := range []string{"", "none"} {
			groups, err := NewGroups(kind, func(name string) string { return map[string]string{variable: value}[name] })
			must(t, err)
			var out strings.Builder
			_, err = groups.Guard(&out).Write([]byte("##vso[a]\n##teamcity[a]\n##[a]\n::a::\n"))
			must(t, err)
			if got := executed(out.String()); got != nil {
				t.Errorf("%s, --log-groups %q: %q", variable, kind, got)
			}
		}
	}
}

// TestNoCommandsOfTwoStreams: a line feed on one stream of a container makes no command of what is in the middle of a
// line of the other stream, whether a step's log has both streams as one or each by itself.
func TestNoCommandsOfTwoStreams(t *testing.T) {
	t.Parallel()
	groups, err := NewGroups("none", func(name string) string { return map[string]string{"GITHUB_ACTIONS": "true"}[name] })
	must(t, err)
	const at = "2026-01-02T15:04:05.000000000Z "
	text := at + "stdout P a\n" + at + "stderr F b\n" + at + "stdout F ::add-mask::c\n" +
		at + "stdout P d\n" + at + "stderr F ::add-mask::e\n" + at + "stdout P #\n" + at + "stderr P #\n" + at + "stdout F [f]\n"
	for _, merged := range []bool{true, false} {
		p := notDonePod("job", v1.ContainerStatus{State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}})
		var out, errOut strings.Builder
		l := &Logs{Out: &out, ErrOut: &errOut, Groups: groups, Dirs: layout.Dirs{Log: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
		if merged {
			l.ErrOut = &out
		}
		path := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", 0)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
		l.Select(Run{Done: result.Done, Pods: []*v1.Pod{p}}, "failed")
		l.Print()
		if got := append(executed(out.String()), executed(errOut.String())...); got != nil {
			t.Errorf("merged %v: %q of %q and %q", merged, got, out.String(), errOut.String())
		}
	}
}
