// Command pages writes podrun's man pages (section 1) and its completions for bash, zsh and fish
// below a directory, at the paths where a Debian package has them:
//
//	go run ./hack/pages DIR
//
// It is no part of podrun. All of it is generated from cmd.Tree; begin reading at write.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"podrun.io/podrun/cmd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pages DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

// The places of Debian's.
const (
	man  = "man1"
	bash = "bash-completion/completions/podrun"
	zsh  = "zsh/vendor-completions/_podrun"
	fish = "fish/vendor_completions.d/podrun.fish"
)

func write(dir string) error {
	root := cmd.Tree()
	for _, sub := range []string{man, filepath.Dir(bash), filepath.Dir(zsh), filepath.Dir(fish)} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	hide(root)
	// Their date is SOURCE_DATE_EPOCH's, so that the same sources make the same pages.
	header := &doc.GenManHeader{Section: "1", Source: "podrun", Manual: "podrun's commands"}
	if err := doc.GenManTree(root, header, filepath.Join(dir, man)); err != nil {
		return err
	}
	if err := root.GenBashCompletionFileV2(filepath.Join(dir, bash), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(filepath.Join(dir, zsh)); err != nil {
		return err
	}
	return root.GenFishCompletionFile(filepath.Join(dir, fish), true)
}

// hide keeps the generator's own line out of the pages.
func hide(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		hide(sub)
	}
}
