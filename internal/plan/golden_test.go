package plan

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podrun.io/podrun/internal/pod"
)

// TestGoldens checks the plans of the cases in testdata, whose README.md has the format: a file is a topic, and a case is the
// sections of one name: pod, resized and given are the input, want is the plan. With PODRUN_UPDATE=1 it writes the plans that it
// gets to the files instead.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := range a.Files {
				name, section := split(a.Files[i].Name)
				if section != "want" {
					continue
				}
				in, err := caseOf(a.Files[:i], name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got := planText(Compute(in), in.Pod)
				if got != "" {
					got += "\n"
				}
				switch {
				case os.Getenv("PODRUN_UPDATE") != "":
					a.Files[i].Data = []byte(got)
				case got != string(a.Files[i].Data):
					t.Errorf("%s: got\n%s\nwant\n%s", name, got, a.Files[i].Data)
				}
			}
			if os.Getenv("PODRUN_UPDATE") != "" {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// split splits the name of a txtar file, "CASE: SECTION".
func split(name string) (of, section string) {
	at := strings.LastIndex(name, ": ")
	return name[:max(at, 0)], name[at+2:]
}

// caseOf returns the input that the sections of the named case describe.
func caseOf(sections []txtar.File, name string) (Input, error) {
	in := Input{Now: now, Boot: boot}
	var given given
	for _, f := range sections {
		of, section := split(f.Name)
		if of != name {
			continue
		}
		var err error
		switch section {
		case "pod":
			in.Pod, err = podOf(f.Data)
		case "resized":
			in.Resized, err = podOf(f.Data)
		case "given":
			err = yaml.UnmarshalStrict(f.Data, &given)
		default:
			err = fmt.Errorf("there is no section %q", section)
		}
		if err != nil {
			return in, fmt.Errorf("%s: %w", section, err)
		}
	}
	given.into(&in)
	return in, nil
}

// podOf decodes a pod. Name, namespace and UID default to web-node, default and u1.
func podOf(text []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		return nil, err
	}
	p.Name, p.Namespace = cmp.Or(p.Name, "web-node"), cmp.Or(p.Namespace, "default")
	p.UID = cmp.Or(p.UID, "u1")
	return p, nil
}

// given is the section of that name: the input besides the pod. A time is written as how long ago it was.
type given struct {
	Sandboxes  []givenSandbox          `json:"sandboxes,omitempty"`
	Containers []givenContainer        `json:"containers,omitempty"`
	Remembered []givenContainer        `json:"remembered,omitempty"`
	Data       []pod.UID               `json:"data,omitempty"`
	Images     map[string]string       `json:"images,omitempty"`
	Signals    map[string]givenSignals `json:"signals,omitempty"`
	Probes     map[string]givenProbes  `json:"probes,omitempty"`
	Failures   map[string]givenFailure `json:"failures,omitempty"`
	Evicted    string                  `json:"evicted,omitempty"`
	Began      *ago                    `json:"began,omitempty"`
	MaxGrace   *ago                    `json:"maxGrace,omitempty"`
	MaxBackoff ago                     `json:"maxBackoff,omitempty"`
	After      []string                `json:"after,omitempty"`
	Node       v1.ResourceList         `json:"node,omitempty"`
	Used       v1.ResourceList         `json:"used,omitempty"`
	CPUs       givenCPUs               `json:"cpus,omitzero"`
	NodeLabels map[string]string       `json:"nodeLabels,omitempty"`
	EarlierRun bool                    `json:"earlierRun,omitempty"`
	Replaced   bool                    `json:"replaced,omitempty"`
	Refused    string                  `json:"refused,omitempty"`
	Halted     bool                    `json:"halted,omitempty"`

	Interrupted bool `json:"interrupted,omitempty"`
	// Published: CSI drivers have mounted volumes of the pod.
	Published bool `json:"published,omitempty"`
}

// givenCPUs are the CPUs that the pod's containers are to run on.
type givenCPUs struct {
	Shared string            `json:"shared,omitempty"`
	Own    map[string]string `json:"own,omitempty"`
	All    string            `json:"all,omitempty"`
}

// givenSandbox is a sandbox of revision u1 with the ID s<attempt>. It is ready unless it is lost.
type givenSandbox struct {
	Attempt int     `json:"attempt"`
	Lost    bool    `json:"lost,omitempty"`
	UID     pod.UID `json:"uid,omitempty"`
}

// givenContainer is an instance with the ID <name><attempt>. It has the defaults of ctr: revision u1, sandbox s0, this boot, a
// grace period of 30 s, started a minute ago and, if it has exited, exited a second ago.
type givenContainer struct {
	Name              string    `json:"name"`
	Attempt           int       `json:"attempt"`
	State             pod.State `json:"state"`
	ExitCode          int       `json:"exitCode,omitempty"`
	Reason            string    `json:"reason,omitempty"`
	UID               pod.UID   `json:"uid,omitempty"`
	Boot              string    `json:"boot,omitempty"`
	Sandbox           string    `json:"sandbox,omitempty"`
	Backoff           int       `json:"backoff,omitempty"`
	RestartGeneration int       `json:"restartGeneration,omitempty"`
	Grace             *ago      `json:"grace,omitempty"`
	Started           *ago      `json:"started,omitempty"`
	Finished          *ago      `json:"finished,omitempty"`
	Sidecar           int       `json:"sidecar,omitempty"`
	PreStop           bool      `json:"preStop,omitempty"`
	Resources         string    `json:"resources,omitempty"`
	Resizing          string    `json:"resizing,omitempty"`
	CPUs              string    `json:"cpus,omitempty"`
	Reaped            bool      `json:"reaped,omitempty"`
}

// givenSignals is how far the termination of an instance is.
type givenSignals struct {
	Asked     *ago `json:"asked,omitempty"`
	Hooked    *ago `json:"hooked,omitempty"`
	Signalled *ago `json:"signalled,omitempty"`
	Killed    *ago `json:"killed,omitempty"`
	Hooking   bool `json:"hooking,omitempty"`
	HookRuns  int  `json:"hookRuns,omitempty"`
	Alone     bool `json:"alone,omitempty"`
}

// givenProbes is what the probes and the postStart hook of an instance report.
type givenProbes struct {
	Starting bool         `json:"starting,omitempty"`
	Started  *bool        `json:"started,omitempty"`
	Ready    *bool        `json:"ready,omitempty"`
	Failed   *givenFailed `json:"failed,omitempty"`
	// RestartRequested: a user requests the restart of the instance.
	RestartRequested bool `json:"restartRequested,omitempty"`
}

// givenFailed is why an instance has to end.
type givenFailed struct {
	Why    string `json:"why"`
	Grace  *ago   `json:"grace,omitempty"`
	Resize bool   `json:"resize,omitempty"`
	// Requested: a user requested the restart, and that is saved.
	Requested bool `json:"requested,omitempty"`
}

// givenFailure is the last failed attempt to create something, and how many failed in a row.
type givenFailure struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	At      *ago   `json:"at,omitempty"`
	Count   int    `json:"count,omitempty"`
}

// ago is a duration as ParseDuration reads it.
type ago time.Duration

// UnmarshalText parses a duration.
func (a *ago) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*a = ago(d)
	return err
}

// time returns the time that long before now; the zero time for nil.
func (a *ago) time() time.Time {
	if a == nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(*a))
}

// duration returns the duration; nil for nil.
func (a *ago) duration() *time.Duration { return (*time.Duration)(a) }

// into sets what g describes in in.
func (g given) into(in *Input) {
	var things []any
	for _, s := range g.Sandboxes {
		of := sandbox(s.Attempt, !s.Lost)
		of.UID = cmp.Or(s.UID, of.UID)
		things = append(things, of)
	}
	for _, c := range g.Containers {
		things = append(things, c.container())
	}
	for _, c := range g.Remembered {
		things = append(things, remembered(c.container()))
	}
	for _, uid := range g.Data {
		things = append(things, uid)
	}
	in.Observed = observed(things...)
	for _, key := range g.After {
		namespace, name, _ := strings.Cut(key, "/")
		in.After = append(in.After, pod.Key{Namespace: namespace, Name: name})
	}
	in.Evicted, in.Since, in.Limits.Override, in.MaxBackoff = g.Evicted, g.Began.time(), g.MaxGrace.duration(), time.Duration(g.MaxBackoff)
	in.Machine, in.NodeLabels = Machine{Has: g.Node, Used: g.Used, CPUs: pod.CPUs(g.CPUs)}, g.NodeLabels
	in.Earlier, in.Replaced, in.Refused = g.EarlierRun, g.Replaced, g.Refused
	in.Interrupted = g.Interrupted
	if g.Halted {
		in.Limits.Shutdown = new(time.Hour) // longer than the grace periods of the cases
		in.Limits.Published = g.Published
	}
	in.Images, in.Signalled = map[string]Image{}, map[string]pod.Signals{}
	in.Probed, in.Failures = map[string]pod.Probed{}, map[string]Failure{}
	for name, state := range g.Images {
		pulling, progress, _ := strings.Cut(state, ": ")
		in.Images[name] = Image{Ready: state == "ready", Pulling: pulling == "pulling", Progress: progress}
	}
	for id, s := range g.Signals {
		in.Signalled[id] = pod.Signals{
			Asked: s.Asked.time(), Hooked: s.Hooked.time(), Signalled: s.Signalled.time(), Killed: s.Killed.time(),
			Hooking: s.Hooking, HookRuns: s.HookRuns, Alone: s.Alone,
		}
	}
	for id, p := range g.Probes {
		probed := pod.Probed{Starting: p.Starting, Started: p.Started, Ready: p.Ready, RestartRequested: p.RestartRequested}
		if f := p.Failed; f != nil {
			probed.Failed = &pod.Failed{Why: f.Why, Grace: f.Grace.duration(), Resize: f.Resize, Requested: f.Requested}
		}
		in.Probed[id] = probed
	}
	for name, f := range g.Failures {
		in.Failures[name] = Failure{Reason: f.Reason, Message: f.Message, At: f.At.time(), Count: f.Count}
	}
}

// container returns the instance.
func (g givenContainer) container() pod.Container {
	c := ctr(g.Name, g.Attempt, g.State)
	c.ExitCode, c.Reason, c.Backoff, c.RestartGeneration = g.ExitCode, g.Reason, g.Backoff, g.RestartGeneration
	c.Sidecar, c.PreStop, c.Resources, c.CPUs, c.Reaped = g.Sidecar, g.PreStop, g.Resources, g.CPUs, g.Reaped
	c.Resizing = g.Resizing
	c.UID, c.Boot, c.SandboxID = cmp.Or(g.UID, c.UID), cmp.Or(g.Boot, c.Boot), cmp.Or(g.Sandbox, c.SandboxID)
	if g.Grace != nil {
		c.Grace = time.Duration(*g.Grace)
	}
	if g.Started != nil {
		c.StartedAt = g.Started.time()
	}
	if g.Finished != nil {
		c.FinishedAt = g.Finished.time()
	}
	return c
}

// planText formats a plan: a line for each action, then the wake-up, why containers wait, and the state of the pod as a whole.
// The message of CrashLoopBackOff is left out; TestCrashLoopMessage has it.
func planText(p Plan, want *v1.Pod) string {
	var lines []string
	for _, a := range p.Actions {
		lines = append(lines, a.String())
	}
	if p.Wake > 0 {
		lines = append(lines, "wake "+p.Wake.String())
	}
	if want != nil {
		for _, c := range pod.AllContainers(want) {
			if w, ok := p.Waiting[c.Name]; ok {
				line := c.Name + " waits: " + w.Reason
				if w.Message != "" && w.Reason != "CrashLoopBackOff" {
					line += ": " + w.Message
				}
				lines = append(lines, line)
			}
		}
	}
	for _, state := range []struct {
		name string
		is   bool
	}{{"again", p.Again}, {"completed", p.Completed}, {"unsure", p.Unsure}, {"gone", p.Gone}} {
		if state.is {
			lines = append(lines, state.name)
		}
	}
	if p.Failure != nil {
		lines = append(lines, p.Failure.Reason)
	}
	add := func(what string, w *Waiting) {
		if w != nil {
			lines = append(lines, strings.TrimSuffix(strings.TrimSuffix(what+": "+w.Reason+": "+w.Message, ": "), ": "))
		}
	}
	add("never", p.Never)
	add("not mounted", p.Unmounted)
	add("resize pending", p.ResizePending)
	add("resizing", p.Resizing)
	return strings.Join(lines, "\n")
}
