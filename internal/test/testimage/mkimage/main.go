// Command mkimage writes a small image archive: of Debian's static busybox, or of a static program.
// The Makefile and the demo use it, and people who try podrun without a registry.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"podrun.io/podrun/internal/test/testimage"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var entrypoint, cmd, env list
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	out := flags.String("o", "", "`file` to write")
	ref := flags.String("ref", "", "image `reference`, such as podrun.example/web:1")
	program := flags.String("program", "", "static `program` to make the image of, instead of busybox")
	docker := flags.Bool("docker", false, "write the format of docker save instead of an OCI archive")
	user := flags.String("user", "", "`user` that the process runs as")
	dir := flags.String("workdir", "", "working `directory`")
	flags.Var(&entrypoint, "entrypoint", "a `word` of the ENTRYPOINT; repeatable")
	flags.Var(&cmd, "cmd", "a `word` of the CMD; repeatable")
	flags.Var(&env, "env", "`NAME=value` of the environment; repeatable")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || *ref == "" || flags.NArg() > 0 {
		return fmt.Errorf("usage: mkimage -o FILE -ref REFERENCE [flags]")
	}
	opts := []testimage.Option{testimage.Env(env...), testimage.User(*user)}
	if entrypoint != nil {
		opts = append(opts, testimage.Entrypoint(entrypoint...))
	}
	if cmd != nil {
		opts = append(opts, testimage.Cmd(cmd...))
	}
	if *dir != "" {
		opts = append(opts, testimage.WorkingDir(*dir))
	}
	if *docker {
		opts = append(opts, testimage.DockerArchive())
	}
	path, err := build(filepath.Dir(*out), *ref, *program, opts)
	if err != nil {
		return err
	}
	return os.Rename(path, *out)
}

func build(dir, ref, program string, opts []testimage.Option) (string, error) {
	if program != "" {
		return testimage.Program(dir, ref, program, opts...)
	}
	return testimage.Busybox(dir, ref, opts...)
}
