package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

// TestLogsOfAPod: the page of a pod tells the streams of its containers apart, merges their logs by time, over restarts,
// and shows the run before; with a keyboard, without scripts and behind a path.
func TestLogsOfAPod(t *testing.T) {
	if wanted() && setup.address != "embedded" {
		t.Skip("the pages know no containerd: they are looked at with podrun's own")
	}
	n := newNode(t)
	address := freeAddress(t)
	n.write("two.yaml", withGrace(manifest("two", "Always", `printf "\033[31mred\033[0m\n"; echo oops >&2; trap 'echo last words; exit 1' TERM; while :; do echo tick; sleep 0.1; done`)+
		container("side", `trap 'exit 0' TERM; while :; do echo tock; sleep 0.1; done`), 5))
	n.serve("--listen=" + address)
	n.ready("two-n")
	s := &sight{n: n, b: newBrowser(t, n.path("chromium")), address: "http://" + address + "/"}
	s.streams(t)
	s.merged(t)
	s.before(t)
	s.plainLogs(t)
	s.behindPath(t, address)
	s.accessible(t, "pod/default/two-n?container=*")
	if len(s.b.errors) > 0 {
		t.Errorf("in the console: %q", s.b.errors)
	}
}

const (
	logText = "document.getElementById('log').textContent"
	stderrs = "[...document.querySelectorAll('#log .stderr')].map((e) => e.textContent).join('')"
)

// choose chooses in a field of the log.
func (b *browser) choose(field, value string) {
	b.t.Helper()
	b.text(fmt.Sprintf("field = tools.elements[%q], field.value = %q, field.dispatchEvent(new Event('change'))", field, value))
}

// streams: what goes to standard error has a mark, for eyes and ears, and can be had alone.
func (s *sight) streams(t *testing.T) {
	b := s.b
	b.open(s.address + "pod/default/two-n?container=c")
	b.until(logText, "red\n")
	b.until(logText, "tick\ntick\n")
	b.until("'[' + "+stderrs+" + ']'", "[oops\n]")
	b.until("getComputedStyle(document.querySelector('#log .stderr'), '::before').content", `"err"`)
	if tree := b.tree(); !strings.Contains(tree, "\"standard error: \"") {
		t.Errorf("nobody hears of standard error:\n%s", tree)
	}
	b.choose("stream", "Stderr")
	b.until("'[' + "+logText+" + ']' + location.search", "[oops\n]?container=c&stream=Stderr")
	b.text("before = true, setTimeout(() => location.reload(), 0)")
	b.until("typeof before + document.readyState + tools.elements.stream.value + '[' + "+logText+" + ']'", "undefinedcompleteStderr[oops\n]")
	b.choose("stream", "Stdout")
	b.until(logText, "red\ntick\ntick\n")
	b.until("document.querySelector('#log-of a').search", "?container=c&stream=Stdout")
	b.choose("stream", "")
	b.until(stderrs, "oops")
	if got := b.text(logText); strings.Contains(got, "tock") {
		t.Errorf("of another container: %s", got)
	}
}

// merged: the lines of all containers come by their time, each with its container, and go on over a restart.
func (s *sight) merged(t *testing.T) {
	n, b := s.n, s.b
	b.open(s.address + "pod/default/two-n?container=c")
	b.until("document.activeElement.nodeName", "BODY")
	b.text("tools.elements.container.focus(), '' + document.activeElement.name")
	b.press("ArrowUp") // to all containers
	b.until("document.getElementById('of').textContent + location.search", "Log of all containers?container=*")
	b.until(logText, "c tick\n")
	b.until(logText, "side tock\n")
	b.until(stderrs, "c oops\n")
	if got := b.text("document.activeElement.name"); got != "container" {
		t.Errorf("the focus went to %q", got)
	}
	b.choose("times", "")
	lines := logText + ".trimEnd().split('\\n')"
	inOrder := func() string {
		b.text("tools.elements.times.click()")
		b.until("String("+lines+".length > 30 && "+lines+".every((line) => /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z (c|side) /.test(line)))", "true")
		return b.text("(at => String(at.every((one, i) => !i || at[i - 1] <= one)))(" + lines + ".map((line) => line.slice(0, 30)))")
	}
	// On a slow machine a line may be read after later ones of another container. Who asks again has them in order.
	ordered := inOrder()
	for range 5 {
		if ordered == "true" {
			break
		}
		b.open(s.address + "pod/default/two-n?container=*")
		ordered = inOrder()
	}
	if ordered != "true" {
		t.Errorf("lines are not in the order of their times:\n%s", b.text(logText))
	}
	b.text("tools.elements.times.click()")
	b.until(logText, "c tick\n")
	must(t, syscall.Kill(n.mainPID(n.pod("two-n"), "c"), syscall.SIGTERM))
	b.until(logText, "— c started again —\n")
	b.until(logText, "c last words\n")
	b.until(logText+".split('again —')[1]", "c tick\n")
	b.until(logText+".split('again —')[1]", "side tock\n")
	b.until("'' + ("+logText+".match(/last words/g) ?? []).length + "+logText+".match(/again/g).length", "11")
	for _, width := range []int{390, 1280, 2560} {
		b.size(width, 800)
		b.until("innerWidth + ' ' + (document.documentElement.scrollWidth <= document.documentElement.clientWidth)", fmt.Sprint(width, " true"))
		b.text("log.scrollIntoView({block: 'end'}), ''")
		b.picture(fmt.Sprint("logs-", width))
	}
	b.size(1200, 800)
	if got := n.http("/pod/default/two-n/log?stream=Stderr&tailLines=1"); !strings.HasSuffix(got, "Z c stderr oops\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("the last line of standard error: %q", got)
	}
	if got := n.http("/containerLogs/default/two-n/c?stream=Stderr&tailLines=1"); got != "oops\n" {
		t.Errorf("the last line of standard error: %q", got)
	}
}

// before: the run before has its colours and its streams, and is whole.
func (s *sight) before(t *testing.T) {
	b := s.b
	b.choose("container", "c")
	b.choose("previous", "true")
	b.until("document.getElementById('of').textContent + location.search", "Log of c, the run before?container=c&previous=true")
	b.until(logText, "tick\nlast words\n")
	b.until("document.querySelector('#log .colour-1').textContent + "+stderrs, "redoops\n")
	b.choose("container", "side") // which has run once
	b.until(logText, `a previous run of container "side" in pod two-n: not found`)
	b.choose("previous", "")
	b.until(logText, "tock\ntock\n")
}

// plainLogs: without scripts all is there but the colours, and a button chooses.
func (s *sight) plainLogs(t *testing.T) {
	b := s.b
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.open(s.address + "pod/default/two-n?container=*&stream=Stderr")
	b.until("'[' + "+logText+" + ']' + "+stderrs, "[c oops\n]c oops")
	b.until("document.querySelector('#tools button').innerText + document.getElementById('of').textContent", "ShowLog of all containers")
	b.open(s.address + "pod/default/two-n?container=c&previous=true")
	b.until(logText, "tick\nlast words\n")
	if got := b.text("document.querySelectorAll('#log [class^=colour]').length"); got != "0" {
		t.Errorf("%s colours", got)
	}
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
}

// behindPath: the log goes on behind a proxy that serves podrun at a path.
func (s *sight) behindPath(t *testing.T, address string) {
	proxy := httptest.NewServer(http.StripPrefix("/node/one", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})))
	defer func() {
		proxy.CloseClientConnections() // of a page that does not show what it should
		proxy.Close()
	}()
	b := s.b
	b.open(proxy.URL + "/node/one/pod/default/two-n?container=*")
	b.until("document.getElementById('state').textContent", "Shown as it is now.")
	b.until("first = window.first ?? log.textContent.length, log.textContent.length > first + 40", "true")
}
