package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/csi"
)

// simulation is one history on a world: what people, the machine and the network do.
type simulation struct {
	w     *world
	o     Options
	r     *rand.Rand
	texts int
	// processes counts podruns; serve is the one that serves, onces are those beside it.
	processes int
	serve     *podrun
	onces     []*podrun
	// pods are what serve's sources say, by pod; nil: no manifest. old are earlier versions.
	pods     [servedPods]offer
	old      []*v1.Pod
	versions int
	// job is the version of the Job; 0: no manifest.
	job int
	// cron is the version of the CronJob; 0: no manifest.
	cron int
	// roll is the version of the Deployment, and lastRoll the one before; 0: no manifest.
	roll, lastRoll int
	// webDown has the URL answer with an error. It and web are guarded by w.mu.
	webDown bool
	web     map[int][]byte
}

// servedPods are the pods of serve's manifests; those of once have the indices after them, or the last of them.
const servedPods = 3

// offer is a pod's manifest.
type offer struct {
	pod   *v1.Pod
	byURL bool
	bad   bool      // it cannot be read
	since time.Time // when it changed last
	// anew says that the machine was restarted since: what had completed runs again, as its checkpoint has it.
	anew bool
}

// done reports that what the manifest says is done, and was read long ago.
func (s *simulation) done(of offer) bool {
	// Sources are read more often, and no call of a worker's takes longer.
	const enough = 130 * time.Second
	return time.Since(of.since) > enough && s.w.settled(of.pod) == ""
}

// podrun is a process under way.
type podrun struct {
	*process
	done chan struct{}
	pods []*v1.Pod // once's
	err  error     // set when done is closed
}

// begin begins a podrun that run is; it ends when run returns, or when it is killed.
func (s *simulation) begin(command string, mortal bool, run func(ctx context.Context, o Options) error) *podrun {
	s.processes++
	p := newProcess(s.w, s.processes, command, mortal)
	o, m := s.o, *s.o.machine
	o.backend, o.locks, o.machine = p.backend(s.o.Log), p.locks, &m
	m.Boot, m.wall, m.processes, m.devices = s.w.engine.Boot(), s.w.engine.Wall, p, p.devices
	m.drivers = &csi.Machine{Dial: p.dialDriver, KindOn: s.w.kindOn}
	if command == owner.Serve { // as with --plugins
		o.Connect.PluginsDir, m.plugins = s.w.csi.dir, p.registers
	}
	m.published = func(q *v1.Pod) {
		if !p.killed() {
			s.w.published(q)
		}
	}
	if s.o.Log.Enabled(context.Background(), slog.LevelInfo) {
		o.Log = s.o.Log.With("process", s.processes)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out := &podrun{process: p, done: make(chan struct{})}
	s.note("process %d: %s", p.number, command)
	go func() {
		select {
		case <-p.dead:
			s.note("process %d ends", p.number)
		case <-out.done:
		}
		cancel()
	}()
	go func() {
		out.err = run(ctx, o)
		p.kill()                    // a process ends with all that it has begun
		time.Sleep(time.Nanosecond) // what it had begun comes to its end
		p.undo()
		p.undoCSI()
		close(out.done)
	}()
	return out
}

func (s *simulation) note(format string, args ...any) {
	s.w.set(func() { s.w.step("* " + fmt.Sprintf(format, args...)) })
}

func (s *simulation) startServe() {
	mortal := s.w.faulty && s.r.IntN(2) == 0
	s.serve = s.begin(owner.Serve, mortal, func(ctx context.Context, o Options) error { return Serve(ctx, o, false) })
}

// pass lets time go by. A serve that ended begins again.
func (s *simulation) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-s.serve.done:
			time.Sleep(time.Duration(s.r.Int64N(int64(3 * time.Second))))
			s.startServe()
		}
	}
}

// stop kills every process.
func (s *simulation) stop() {
	for _, p := range append(s.onces, s.serve) {
		p.kill()
	}
	for _, p := range append(s.onces, s.serve) {
		<-p.done
	}
	s.onces = nil
}

// event is one thing that happens.
func (s *simulation) event() {
	events := []struct {
		weight int
		name   string
		do     func()
	}{
		{4, "a manifest changes", s.change},
		{3, "a manifest comes or goes", s.comeOrGo},
		{2, "a manifest moves", s.move},
		{3, "a manifest goes bad or good", s.spoil},
		{2, "the URL fails or works", s.failURL},
		{4, "serve is killed", func() { s.serve.kill() }},
		{1, "reboot", s.reboot},
		{1, "the engine is away", s.engineAway},
		{1, "the engine begins anew", s.w.forgetTasks},
		{1, "the event stream breaks", s.w.engine.BreakStream},
		{1, "the clock is set", func() { s.w.setClock(time.Duration(s.r.Int64N(int64(2*time.Hour))) - time.Hour) }},
		{2, "a container crashes", s.crash},
		{1, "a sandbox breaks", s.loseSandbox},
		{3, "once", s.once},
		{2, "serve is given what a once left", s.takeOver},
		{3, "the Job comes, changes or goes", s.changeJob},
		{3, "the CronJob comes, changes or goes", s.changeCron},
		{1, "a Job of the CronJob is asked for", s.askForJob},
		{2, "the Deployment comes, changes or goes", s.changeRoll},
		{3, "the devices change", s.changeDevices},
		{2, "the device plugin ends or begins", s.pluginComesOrGoes},
		{2, "the CSI driver ends or begins", s.driverComesOrGoes},
	}
	sum := 0
	for _, e := range events {
		sum += e.weight
	}
	at := s.r.IntN(sum)
	for _, e := range events {
		if at -= e.weight; at < 0 {
			s.note("%s", e.name)
			e.do()
			return
		}
	}
}

func (s *simulation) next() int { s.versions++; return s.versions }

// put offers what the manifests of a pod say now.
func (s *simulation) put(i int) {
	s.pods[i].since, s.pods[i].anew = time.Now(), false
	of := s.pods[i]
	path := filepath.Join(s.o.Sources.Manifests[0], fmt.Sprintf("p%d.yaml", i))
	var text []byte
	switch {
	case of.pod == nil:
	case of.bad:
		s.texts++
		text = []byte("spec: [" + strings.Repeat(" ", s.texts))
	default:
		text = s.manifestOf(of.pod)
	}
	var err error
	if text != nil && !of.byURL {
		err = os.WriteFile(path, text, 0o600)
	} else if err = os.Remove(path); os.IsNotExist(err) {
		err = nil
	}
	s.w.set(func() {
		delete(s.web, i)
		if text != nil && of.byURL {
			s.web[i] = text
		}
		if err != nil {
			s.w.report("the simulation works", "%v", err)
		}
	})
}

func (s *simulation) change() {
	i := s.r.IntN(servedPods)
	of := &s.pods[i]
	if of.pod == nil || of.bad || of.byURL && s.webDown {
		return
	}
	s.old = append(s.old, of.pod)
	back := slices.IndexFunc(s.old, func(p *v1.Pod) bool { return p.Name == of.pod.Name })
	if s.r.IntN(4) == 0 {
		of.pod = s.old[back] // as it was once
	} else {
		of.pod = edited(s.r, i, s.next(), of.pod)
	}
	s.put(i)
}

func (s *simulation) comeOrGo() {
	i := s.r.IntN(servedPods)
	of := &s.pods[i]
	switch {
	case of.bad || of.byURL && s.webDown:
		return
	case of.pod == nil:
		of.pod = randomPod(s.r, i, s.next(), kindsOfPods[s.r.IntN(len(kindsOfPods))])
	default:
		of.pod = nil
	}
	s.put(i)
}

func (s *simulation) move() {
	i := s.r.IntN(servedPods)
	of := &s.pods[i]
	if of.pod == nil || of.bad || s.webDown {
		return
	}
	of.byURL = !of.byURL
	s.put(i)
}

// protect says which revisions must stay because their manifests cannot be read, now that time has gone by in which
// what they said last was done. Where a manifest is may not have been noted down in that time, if a call hung.
func (s *simulation) protect() {
	now := map[pod.UID]bool{}
	store := checkpoint.NewStoreOn(s.w.disk, slog.New(slog.DiscardHandler))
	for _, of := range s.pods {
		unreadable := of.bad || of.byURL && s.webDown
		if of.pod == nil || of.anew || !unreadable {
			continue
		}
		c, err := store.Get(of.pod.UID)
		if err == nil && (manifest.OriginOf(c.Pod).Source == manifest.SourceHTTP) == of.byURL {
			now[of.pod.UID] = true
		}
	}
	s.w.set(func() { s.w.protected = now })
}

func (s *simulation) spoil() {
	i := s.r.IntN(servedPods)
	of := &s.pods[i]
	if of.pod == nil || of.byURL {
		return
	}
	if !of.bad {
		// What it said last is done first.
		for range 40 {
			if s.pass(5 * time.Second); s.done(*of) {
				break
			}
		}
		if !s.done(*of) {
			return
		}
	}
	of.bad = !of.bad
	s.put(i)
	s.protect()
}

func (s *simulation) failURL() {
	if !s.webDown {
		for _, of := range s.pods {
			if of.pod != nil && of.byURL && !s.done(of) {
				return
			}
		}
	}
	s.w.set(func() { s.webDown = !s.webDown })
	s.protect()
}

func (s *simulation) reboot() {
	s.stop()
	lose := s.r.IntN(2) == 0
	if !lose {
		s.w.disk.Sync()
	}
	s.w.powerOff(lose)
	for i := range s.pods {
		s.pods[i].anew = true
	}
	_ = os.RemoveAll(s.o.Dirs.Run)
	s.w.set(func() {
		for uid := range s.w.uids {
			if _, err := s.w.disk.Stat(uid); err != nil {
				_ = os.RemoveAll(s.o.Dirs.Pod(uid))
			}
		}
	})
	time.Sleep(time.Duration(s.r.Int64N(int64(10 * time.Second))))
	s.startServe()
}

func (s *simulation) engineAway() {
	s.w.set(func() { s.w.away = true })
	s.w.engine.BreakStream()
	s.pass(time.Duration(s.r.Int64N(int64(20 * time.Second))))
	if s.r.IntN(2) == 0 {
		s.w.forgetTasks()
	}
	s.w.set(func() { s.w.away = false })
}

func (s *simulation) crash() {
	var live []*instance
	for i := range servedPods {
		s.w.set(func() { live = append(live, s.w.live(keyOfIndex(i), "")...) })
	}
	if len(live) > 0 {
		s.w.exit(live[s.r.IntN(len(live))], 1, "")
	}
}

func (s *simulation) loseSandbox() {
	if ids := s.w.engine.SandboxIDs(); len(ids) > 0 {
		s.w.engine.LoseSandbox(ids[s.r.IntN(len(ids))])
	}
}

// takeOver gives serve the manifest of a pod that a once has left running, as a rule for a moment only.
func (s *simulation) takeOver() {
	const i = servedPods - 1
	if s.pods[i].pod != nil {
		return
	}
	p := randomPod(s.r, i, s.next(), v1.RestartPolicyAlways)
	<-s.runOnce([]*v1.Pod{p}, OnceOptions{Timeout: time.Minute, Stable: result.DefaultStable}, false).done
	s.pass(time.Duration(s.r.Int64N(int64(20 * time.Second))))
	s.pods[i].pod, s.pods[i].byURL = p, false
	s.put(i)
	if s.r.IntN(4) > 0 {
		s.pass(s.o.Sources.FileCheckFrequency + time.Duration(s.r.Int64N(int64(3*time.Second))))
		s.pods[i].pod = nil
		s.put(i)
	}
}

func keyOfIndex(i int) pod.Key { return pod.Key{Namespace: "default", Name: fmt.Sprintf("p%d", i)} }

// once begins a once beside serve, on pods of its own or on one that serve has too.
func (s *simulation) once() {
	var pods []*v1.Pod
	for i := range 1 + s.r.IntN(2) {
		index := servedPods + i
		if s.r.IntN(4) == 0 {
			index = servedPods - 1
		}
		policy := kindsOfPods[s.r.IntN(len(kindsOfPods))]
		if slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Name == keyOfIndex(index).Name }) {
			continue
		}
		p := randomPod(s.r, index, s.next(), policy)
		pods = append(pods, p)
	}
	options := OnceOptions{
		Timeout: time.Duration(5+s.r.IntN(100)) * time.Second, Remove: s.r.IntN(2) == 0,
		Stable: result.DefaultStable, PullTimeout: 20 * time.Second,
	}
	s.runOnce(pods, options, s.r.IntN(2) == 0)
}

func (s *simulation) runOnce(pods []*v1.Pod, options OnceOptions, mortal bool) *podrun {
	dir := filepath.Join(filepath.Dir(s.o.Dirs.Root), fmt.Sprintf("once-%d", s.processes))
	_ = os.Mkdir(dir, 0o700)
	for _, p := range pods {
		_ = os.WriteFile(filepath.Join(dir, p.Name+".yaml"), s.manifestOf(p), 0o600)
		key := pod.Key{Namespace: "default", Name: p.Name}
		s.w.set(func() {
			s.w.left[p.UID] = key != keyOfIndex(servedPods-1)
		})
	}
	out := s.begin(owner.Once, mortal, func(ctx context.Context, o Options) error {
		o.Sources = sources.Options{Manifests: []string{dir}, NoSuffix: true}
		r, err := Once(ctx, o, options)
		s.note("once: %v, timed out %v", err, r.TimedOut)
		return err
	})
	out.pods = pods
	s.onces = append(s.onces, out)
	return out
}

// listen answers serve's URL.
func (s *simulation) listen() *http.Server {
	connections := make(chan net.Conn)
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		s.w.mu.Lock()
		down := s.webDown
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
		for i := range servedPods {
			if s.web[i] != nil {
				text += "---\n" + string(s.web[i])
			}
		}
		s.w.mu.Unlock()
		if down {
			out.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(out, text)
	})}
	go func() { _ = server.Serve(acceptor(connections)) }()
	s.o.machine.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case connections <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return server
}
