// Command oracle feeds manifests to podrun and to Kubernetes' own decoder, defaults and validation, and
// tells where their verdicts differ. Every difference that is meant stands in one table, with its reason;
// any other one fails. The manifests are those of the project, odd ones written by hand, and many made by
// putting edge values into each field of a pod; the same ones in every run.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// manifest is a file's content. Its name says what it tries.
type manifest struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("oracle", flag.ContinueOnError)
	podrun := flags.String("podrun", "", "`program` that tells podrun's verdicts")
	files := flags.String("files", "", "`pattern` of manifest files to judge beside the generated ones")
	doc := flags.String("doc", "", "`file` to write the table to, as Markdown")
	write := flags.String("write", "", "`directory` to write the manifests to that differ without a reason")
	if err := flags.Parse(args); err != nil {
		return err
	}
	corpus, err := all(*files)
	if err != nil {
		return err
	}
	theirs, err := verdicts(*podrun, corpus)
	if err != nil {
		return err
	}
	judge, err := newKubernetes()
	if err != nil {
		return err
	}
	r := newReport()
	for i, m := range corpus {
		if theirs[i].Name != m.Name {
			return fmt.Errorf("podrun's verdict on %s is missing", m.Name)
		}
		k := judge.judge(m)
		found := compare(theirs[i], k)
		// Its policy is asked of podrun's pods too: of a manifest that Kubernetes cannot read, it has none.
		if err := judge.restrictAll(&k, theirs[i].Pods); err != nil {
			return err
		}
		found = append(found, compareLevels(theirs[i], k)...)
		if !r.add(m, theirs[i], k, found) && *write != "" {
			if err := os.WriteFile(filepath.Join(*write, fileName(m.Name)), m.Data, 0o644); err != nil {
				return err
			}
		}
	}
	r.print(out)
	if err := r.err(); err != nil || *doc == "" {
		return err
	}
	return os.WriteFile(*doc, r.document(), 0o644)
}

// all is the whole corpus.
func all(pattern string) ([]manifest, error) {
	var corpus []manifest
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", pattern, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file is like %q", pattern)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		corpus = append(corpus, manifest{Name: filepath.Base(path), Data: data})
	}
	corpus = append(corpus, oddities()...)
	corpus = append(corpus, spellings()...)
	corpus = append(corpus, edges()...)
	corpus = append(corpus, combinations()...)
	corpus = append(corpus, restrictions()...)
	seen := map[string]bool{}
	for _, m := range corpus {
		if seen[m.Name] {
			return nil, fmt.Errorf("two manifests are named %s", m.Name)
		}
		seen[m.Name] = true
	}
	return corpus, nil
}

// verdicts asks podrun.
func verdicts(program string, corpus []manifest) ([]verdict, error) {
	var in, errOut bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, m := range corpus {
		if err := encoder.Encode(m); err != nil {
			return nil, err
		}
	}
	command := exec.Command(program)
	command.Stdin, command.Stderr = &in, &errOut
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("asking podrun: %w: %s", err, errOut.Bytes())
	}
	var all []verdict
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var v verdict
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading podrun's verdicts: %w", err)
		}
		all = append(all, v)
	}
	if len(all) != len(corpus) {
		return nil, fmt.Errorf("podrun judged %d manifests of %d", len(all), len(corpus))
	}
	return all, nil
}
