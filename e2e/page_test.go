package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPage: in Debian's Chromium the pages show what pods are, to whoever looks or listens. One pod ticks and one fails, both
// with what would act on a page or a terminal.
func TestPage(t *testing.T) {
	if wanted() && setup.address != "embedded" {
		t.Skip("the pages know no containerd: they are looked at with podrun's own")
	}
	n := newNode(t)
	address := freeAddress(t)
	n.write("web.yaml", manifest("web", "Always", `printf "<img src=x onerror=alert(1)> \033[31mred\033[0m \033]0;title\007\n"; trap 'echo last words; exit 1' TERM; while :; do echo tick; sleep 0.5; done`))
	n.write(`<img src=x onerror=alert(1)>.yaml`, manifest("sick", "Always", `echo "<b>boom</b>" >/dev/termination-log; exit 7`))
	n.serve("--listen=" + address)
	n.ready("web-n")
	n.await("the reason", func() error {
		if got := n.ok("get", "pods"); !strings.Contains(got, "sick-n   0/1     CrashLoopBackOff") {
			return fmt.Errorf("get:\n%s", got)
		}
		return nil
	})
	s := &sight{n: n, b: newBrowser(t, n.path("chromium")), address: "http://" + address + "/"}
	s.withoutScripts(t)
	s.looks(t)
	s.filters(t)
	s.accessible(t, "", "?search=none", "pod/default/sick-n", "pod/default/web-n", "pod/default/none")
	s.pictures(t)
	s.goesOn(t)
	s.saysLittle(t)
	if len(s.b.errors) > 0 {
		t.Errorf("in the console: %q", s.b.errors)
	}
	if s.b.text("console.error('seen')"); len(s.b.errors) == 0 {
		t.Error("errors of the console are not seen")
	}
	n.end(syscall.SIGTERM)
	s.b.until("document.getElementById('state').textContent", "podrun does not answer: shown as it was last.")
}

// sight is a node as a browser shows it.
type sight struct {
	n       *node
	b       *browser
	address string
}

// withoutScripts: the pages tell all that they know when they are loaded.
func (s *sight) withoutScripts(t *testing.T) {
	b, address := s.b, s.address
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.size(1600, 800)
	b.open(address)
	for _, want := range []string{"As of when the page was loaded.", "web-n", "CrashLoopBackOff", "c: exit code 7: <b>boom</b>", "/<img src=x onerror=alert(1)>.yaml"} {
		b.until("document.body.innerText", want)
	}
	b.size(1200, 800)
	b.open(address + "pod/default/web-n")
	b.until("document.getElementById('log').textContent", "<img src=x onerror=alert(1)> red \ntick\n")
	b.until("document.getElementById('events').innerText", "Started container c")
	if got := b.text("document.querySelectorAll('img, b').length"); got != "0" {
		t.Errorf("%s elements of what pods say", got)
	}
	b.open(address + "pod/default/sick-n?container=c&previous=true")
	b.until("document.getElementById('story').innerText", "<b>boom</b>")
	b.open(address + "pod/default/none")
	b.until("document.body.innerText", "There is no pod default/none")
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
}

// filters: the page shows the pods that one asks for, while one types, and its address shows the same again.
func (s *sight) filters(t *testing.T) {
	b := s.b
	const pods, count = "document.getElementById('pods').innerText", "document.getElementById('count').textContent"
	set := func(field, value string) {
		b.text(fmt.Sprintf("field = document.getElementsByName(%q)[0], field.value = %q, field.dispatchEvent(new Event('input', {bubbles: true}))", field, value))
	}
	b.open(s.address)
	b.until(pods, "web-n")
	set("search", "SICK")
	b.until("'' + "+pods+".includes('web-n')", "false")
	b.until(count+" + location.search", "1 of 2 pods.?search=SICK")
	b.text("before = true, setTimeout(() => location.reload(), 0)")
	b.until("typeof before + document.readyState + "+count+" + document.getElementsByName('search')[0].value", "undefinedcomplete 1 of 2 pods.SICK")
	set("search", "")
	set("state", "well")
	b.until("'' + "+pods+".includes('sick-n') + location.search", "false?state=well")
	set("label", "a=b=c")
	b.until(count, "These labels select nothing:")
	set("label", "")
	set("state", "")
	b.until("'[' + "+count+".trim() + location.search + ']' + "+pods, "[]")
	b.until(pods, "web-n")
	b.open(s.address + "?sort=state")
	b.until("[...document.querySelectorAll('#pods a[id]')].map((a) => a.id).join()", "default/sick-n,default/web-n")
	for _, width := range []int{390, 1280, 2560} {
		b.size(width, 800)
		b.until("document.documentElement.clientWidth + ' ' + document.documentElement.scrollWidth", fmt.Sprintf("%d %[1]d", width))
		b.until("[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)", "true")
		b.picture(fmt.Sprint("filter-", width))
	}
	b.size(1200, 800)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.open(s.address + "?state=unwell")
	b.until(pods, "sick-n")
	if got := b.text(pods); strings.Contains(got, "web-n") {
		t.Errorf("without scripts: %s", got)
	}
	b.until("document.querySelector('#filter button').innerText", "Show")
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
}

// accessible: axe finds nothing on the pages, light or dark, on a telephone or a wide screen.
func (s *sight) accessible(t *testing.T, pages ...string) {
	path := os.Getenv("PODRUN_E2E_AXE")
	if path == "" {
		t.Log("without axe: scripts/axe.sh fetches it")
		return
	}
	axe, err := os.ReadFile(path)
	must(t, err)
	b := s.b
	const run = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((all) =>
		all.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; ")).join("\n") + " passed: " + all.passes.length)`
	for _, page := range pages {
		for _, scheme := range []string{"light", "dark"} {
			b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			for _, width := range []int{390, 1280, 2560} {
				b.size(width, 800)
				b.open(s.address + page)
				b.text(string(axe) + ";0")
				found, passed, ok := strings.Cut(b.text(run), " passed: ")
				if found != "" || !ok || len(passed) < 2 {
					t.Errorf("%q, %s, %d pixels: %s", page, scheme, width, found+passed)
				}
			}
		}
	}
	b.size(1200, 800)
}

// goesOn: the pages go on, by keyboard alone, over the end of a run.
func (s *sight) goesOn(t *testing.T) {
	n, b, address := s.n, s.b, s.address
	b.open(address)
	b.until("document.getElementById('state').textContent", "Shown as it is now.")
	// Between two back-offs the failing pod runs for a moment.
	b.until("document.body.innerText", "CrashLoopBackOff")
	b.until("document.getElementById('node').innerText", "podrun")
	n.write("wrong.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {containers: [{name: c, imag: x}]}\n")
	b.until("document.getElementById('problems').innerText", "wrong.yaml:4: spec.containers[0].imag: unknown field")
	n.remove("wrong.yaml")
	n.write("shop.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec:\n  selector: {matchLabels: {a: b}}\n"+
		"  template:\n    metadata: {labels: {a: b}}\n    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: '"+box+
		"', command: [sleep, '1000']}]}\n")
	b.until("document.getElementById('workloads').innerText", "Deployment shop\t1/1 ready")
	n.remove("shop.yaml")
	b.until("'[' + document.getElementById('workloads').innerText + ']'", "[]")
	b.until("'' + document.getElementById('pods').innerText.includes('shop-0-n')", "false")
	b.until("'[' + document.getElementById('problems').innerText + ']'", "[]")
	b.picture("pods")
	tree := b.tree()
	for _, want := range []string{
		"main \"\"\n", "heading \"Pods of this node\"\n", "status \"\" live=polite\n", "region \"Pods\"\n", "columnheader \"Reason\"\n", "rowheader \"web-n\"\n", "link \"web-n\"\n",
		"link \"Log of c in web-n\"\n", "cell \"CrashLoopBackOff\"\n",
	} {
		if !strings.Contains(tree, want) {
			t.Errorf("no %q in the tree:\n%s", want, tree)
		}
	}

	// On a telephone nothing is beside the screen, and the reason is under the name.
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 700, "deviceScaleFactor": 2, "mobile": true}, nil)
	b.until("[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth) + ' ' + document.documentElement.scrollWidth", "true 360")
	b.until("document.querySelector('tr[data-pod=sick-n] > .reason').innerText", "c: ")
	b.picture("telephone")
	b.call("Emulation.clearDeviceMetricsOverride", map[string]any{}, nil)

	// By keyboard: into a pod, and back to where one was.
	var order []string
	for range 11 {
		b.press("Tab")
		order = append(order, b.text("document.activeElement.id || document.activeElement.name || document.activeElement.getAttribute('aria-label')"))
	}
	if got := strings.Join(order, ", "); got != "unwell, search, state, namespace, label, sort, Pods, default/sick-n, Log of c in sick-n, default/web-n, Log of c in web-n" {
		t.Errorf("focus went to %s", got)
	}
	b.open(address + "#default/web-n")
	b.until("document.activeElement.id", "default/web-n")
	b.press("Enter")
	b.until("document.title + document.readyState", "web-n – podruncomplete")
	b.until("document.getElementById('state').textContent", "Shown as it is now.")

	b.until("document.getElementById('spec').textContent", "containers:\n- command:\n")

	// The log goes on, over the end of the run.
	b.until("document.getElementById('log').textContent", "<img src=x onerror=alert(1)> red \ntick\ntick\n")
	tree = b.tree()
	for _, want := range []string{"heading \"Pod web-n\"\n", "region \"Containers\"\n", "log \"Log of c\"\n", "link \"All pods\"\n", "heading \"Events\"\n"} {
		if !strings.Contains(tree, want) {
			t.Errorf("no %q in the tree:\n%s", want, tree)
		}
	}
	s.logs(t)
	must(t, syscall.Kill(n.mainPID(n.pod("web-n"), "c"), syscall.SIGTERM))
	b.until("document.getElementById('log').textContent", "last words\n— started again —\n")
	b.until("document.getElementById('story').innerText", "Error, exit code 1")
	b.until("document.getElementById('log').textContent.split('again —')[1]", "tick\n")
	b.picture("pod")
	if got := b.text("document.querySelectorAll('img, b').length"); got != "0" {
		t.Errorf("%s elements of what pods say", got)
	}

}

// logs: a log has its colours, is searched, and has times if one wants them.
func (s *sight) logs(t *testing.T) {
	b := s.b
	b.until("document.querySelector('#log .colour-1').textContent", "red")
	b.text("find = tools.elements.find, find.value = 'TICK', find.dispatchEvent(new Event('input'))")
	b.until("[...CSS.highlights.get('mark')].every((range) => range.toString() === 'tick') + document.getElementById('marks').textContent.replace(/^([0-9]{2,}|[2-9])( or more)?/, 'many')", "truemany times")
	b.picture("log")
	b.text("find.value = '', find.dispatchEvent(new Event('input'))")
	b.until("'[' + document.getElementById('marks').textContent + CSS.highlights.get('mark').size + ']'", "[0]")
	b.text("tools.elements.times.click()")
	b.until("String(/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z tick$/m.test(log.textContent) && !/^tick/m.test(log.textContent))", "true")
	b.text("tools.elements.times.click()")
	b.until("String(/^tick/m.test(log.textContent) && !/Z tick$/m.test(log.textContent))", "true")
	// All of what was written before is shown, also if it comes at once; and small letters may be more than capital ones.
	b.text("clear(), append('now c stdout \u0130\u0130tick+ of a line that is as long as those of programs are\\n'.repeat(5000)), find.value = 'TICK+', find.dispatchEvent(new Event('input'))")
	b.until("[log.textContent.includes('too fast'), log.textContent.split('of a line').length, marks.length, marks.every((range) => range.toString() === 'tick+')].join()", "false,5001,500,true")
	b.text("find.value = '', find.dispatchEvent(new Event('input')), clear()")
}

// TestFloodOfLog: a container that writes tens of thousands of lines a second neither freezes its page nor fills it, nor
// that of all containers, nor podrun's memory when nobody reads.
func TestFloodOfLog(t *testing.T) {
	if wanted() && setup.address != "embedded" {
		t.Skip("the pages know no containerd: they are looked at with podrun's own")
	}
	n := newNode(t)
	address := freeAddress(t)
	n.write("flood.yaml", manifest("flood", "Always", `trap 'exit 0' TERM; yes "as long as lines are that programs write, more than a connection takes" | head -n 200000; while :; do i=0; while [ $i -lt 200 ]; do echo "line $i of many, as long as lines are that programs write $i$i"; i=$((i+1)); done; sleep 0.01; done`)+
		container("side", `trap 'exit 0' TERM; while :; do echo tock >&2; sleep 0.2; done`)+container("quiet", "exec sleep 1000"))
	// With a heap that is collected often, the memory that podrun has is what it needs.
	n.serveWith([]string{"GOGC=50"}, "--listen="+address)
	n.ready("flood-n")
	b := newBrowser(t, n.path("chromium"))
	b.open("http://" + address + "/pod/default/flood-n?container=c")
	b.until("document.getElementById('log').textContent", "line 199 of many")
	// How late a timer is at most, which is shown only: as long the page cannot do what somebody wants.
	b.text("late = 0, last = performance.now(), setInterval(() => { late = Math.max(late, performance.now() - last - 20); last = performance.now(); }, 20), all = 0, add = append, append = (text) => { all += text.length; add(text); }")
	goesOn := func(what string) {
		t.Helper()
		b.text("all = late = 0")
		b.until("String(all > 1e6)", "true")
		if got := b.text("String(log.textContent.length < 7e5)"); got != "true" {
			t.Errorf("%s: %s characters are kept", what, b.text("log.textContent.length"))
		}
		t.Logf("%s: the page was at most %s ms late, and kept %s characters of %s", what, b.text("Math.round(late)"), b.text("log.textContent.length"), b.text("all"))
		if got := b.text("log.scrollHeight - log.scrollTop - log.clientHeight < 50"); got != "true" {
			t.Errorf("%s: the end of the log is out of sight", what)
		}
	}
	goesOn("one container")
	b.text("tools.elements.container.value = '*', tools.elements.container.dispatchEvent(new Event('change'))")
	b.until("log.textContent", "c line 199 of many")
	b.until("[...document.querySelectorAll('#log .stderr')].at(-1)?.textContent", "side tock\n")
	before := memory(t, n.serving.Process.Pid)
	// Who asks and does not read holds up nobody, and takes no more than the buffers.
	for range 4 {
		c, err := net.Dial("tcp", address)
		must(t, err)
		defer c.Close()
		must(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = fmt.Fprintf(c, "GET /pod/default/flood-n/log?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must(t, err)
	}
	goesOn("all containers")
	goesOn("all containers, later")
	for end := time.Now().Add(floodFor(t)); time.Now().Before(end); {
		goesOn("all containers, still")
	}
	if now := memory(t, n.serving.Process.Pid); now > before+16<<10 {
		t.Errorf("podrun takes %d KiB, before %d", now, before)
	} else {
		t.Logf("podrun takes %d KiB, before %d", now, before)
	}
	b.until("[...document.querySelectorAll('#log .stderr')].at(-1)?.textContent", "side tock\n")
}

// floodFor is how much longer the flood goes on: PODRUN_FLOOD, such as 10m; without it no longer.
func floodFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PODRUN_FLOOD")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// container is another container of a manifest.
func container(name, script string) string {
	return fmt.Sprintf("  - name: %s\n    image: %s\n    command: [sh, -c, %s]\n", name, box, asJSON(script))
}

// memory is how many KiB of memory a process has, without files.
func memory(t *testing.T, pid int) (kib int) {
	t.Helper()
	_, err := fmt.Sscanf(processStatus(t, pid, "RssAnon"), "%d kB", &kib)
	must(t, err)
	return kib
}

// saysLittle: a pod that goes is said once, and nothing else of all that changes.
func (s *sight) saysLittle(t *testing.T) {
	n, b := s.n, s.b
	b.press("Escape")
	b.until("document.readyState + location.pathname + document.activeElement.id", "complete/default/web-n")
	b.until("document.getElementById('state').textContent", "Shown as it is now.")
	// A pod of the same name in another namespace is another one.
	n.write("other.yaml", strings.Replace(manifest("sick", "Always", "exec sleep 1000"), "  name: sick\n", "  name: sick\n  namespace: other\n", 1))
	b.until("document.getElementById('row:other/sick-n')?.dataset.state", "Running")
	b.text("said = []; new MutationObserver(() => said.push(state.textContent + news.textContent)).observe(document.querySelector('main'), {childList: true, characterData: true, subtree: true})," +
		"heard = []; new MutationObserver(() => heard.push(news.textContent)).observe(news, {childList: true})")
	b.until("said.length > heard.length", "true") // what web-n takes
	n.remove(`<img src=x onerror=alert(1)>.yaml`)
	b.until("heard.join()", "sick-n is gone")
	if got := b.text("heard.filter((text) => !text.includes('sick-n')).join()"); got != "" {
		t.Errorf("said beside it: %s", got)
	}
	if got := b.text("document.activeElement.id"); got != "default/web-n" {
		t.Errorf("the focus went to %q", got)
	}
}

// looks: light or dark as the reader has it, and on a narrow screen nothing is out of reach.
func (s *sight) looks(t *testing.T) {
	b, address := s.b, s.address
	for name, path := range map[string]string{"pods": "", "pod": "pod/default/sick-n"} {
		b.size(1200, 800)
		b.open(address + path)
		b.until("document.getElementById('state').textContent", "Shown as it is now.")
		for _, scheme := range []string{"light", "dark"} {
			b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			r, g, blue, _ := b.picture(name+"-"+scheme).At(2, 2).RGBA()
			if bright := r+g+blue > 3*0x8000; bright != (scheme == "light") {
				t.Errorf("%s, %s: background %x %x %x", name, scheme, r>>8, g>>8, blue>>8)
			}
		}
		b.size(320, 640)
		b.until("String(document.documentElement.clientWidth)", "320")
		if got := b.text("document.documentElement.scrollWidth"); got != "320" {
			t.Errorf("%s: %s pixels wide on a screen of 320", name, got)
		}
		b.picture(name + "-narrow")
	}
	b.size(1200, 800)
}

// TestPageWithToken: from another machine a browser shows the pages to who gives the token as a password, once; in the address
// too.
func TestPageWithToken(t *testing.T) {
	if wanted() && setup.address != "embedded" {
		t.Skip("the pages know no containerd: they are looked at with podrun's own")
	}
	n := newNode(t)
	d := n.newDesk()
	n.write("web.yaml", manifest("web", "Always", `trap 'exit 1' TERM; while :; do echo tick; sleep 0.1; done`))
	n.serve(d.listenFlags...)
	n.ready("web-n")
	b := newBrowser(t, n.path("chromium"), "--ignore-certificate-errors")
	goesOn := func() {
		t.Helper()
		b.until("document.getElementById('state').textContent", "Shown as it is now.")
		b.until("first = window.first ?? log.textContent.length, log.textContent.length > first + 20", "true")
	}
	path := d.address + "/pod/default/web-n"
	b.navigate("https://me:" + d.token + "@" + path)
	goesOn()
	b.open("https://" + path + "?container=c")
	goesOn()
	// An answer that is none of podrun's is not the last word. What is waited for comes at once here.
	b.text("at = setTimeout; setTimeout = (then) => at(then); source.close(); source.onerror()")
	b.until("document.getElementById('state').textContent", "Shown as it is now.")
}
