package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/manifest/decode"
)

// FlagMeant returns err, an error of parsing the flags of f, with the flag that was probably meant if
// there is none of the name, or a hint what podrun has in place of a flag of kubectl.
func FlagMeant(f *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	if text := insteadOfFlag(unknown.GetSpecifiedName()); text != "" {
		return &Error{Code: ExitUsage, Err: err, Hint: text}
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	f.VisitAll(func(one *pflag.Flag) { names = append(names, one.Name) })
	if near, _ := decode.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
