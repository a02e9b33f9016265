package provision

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The parameters of a class that are not for its driver, but for who calls it.
//
// Source: https://kubernetes-csi.github.io/docs/external-provisioner.html
const (
	ownPrefix        = "csi.storage.k8s.io/"
	fsTypeParameter  = ownPrefix + "fstype"
	controllerSecret = ownPrefix + "provisioner-secret"
	stageSecret      = ownPrefix + "node-stage-secret"
	publishSecret    = ownPrefix + "node-publish-secret"
)

// parameters sets what a class's parameters say.
func (v *Volume) parameters(all map[string]string) (err error) {
	v.FSType, v.Parameters = all[fsTypeParameter], map[string]string{}
	for key, value := range all {
		switch {
		case !strings.HasPrefix(key, ownPrefix):
			v.Parameters[key] = value
		case key == fsTypeParameter:
		case strings.HasSuffix(key, "-secret-name"), strings.HasSuffix(key, "-secret-namespace"):
			// also of calls that podrun does not make
		default:
			return fmt.Errorf("the StorageClass %q: there is no parameter %s", v.Class, key)
		}
	}
	for parameter, into := range map[string]**v1.SecretReference{
		controllerSecret: &v.ControllerSecret, stageSecret: &v.StageSecret, publishSecret: &v.PublishSecret,
	} {
		name, named := all[parameter+"-name"]
		namespace, given := all[parameter+"-namespace"]
		if !named && !given {
			continue
		}
		ref := &v1.SecretReference{}
		if ref.Name, err = v.resolve(parameter+"-name", name); err != nil {
			return err
		}
		if ref.Namespace, err = v.resolve(parameter+"-namespace", namespace); err != nil {
			return err
		}
		*into = ref
	}
	return nil
}

// resolve puts the names of claim and volume into a parameter.
func (v *Volume) resolve(parameter, value string) (string, error) {
	out := strings.NewReplacer(
		"${pvc.name}", v.Claim, "${pvc.namespace}", v.Namespace, "${pv.name}", v.Name,
	).Replace(value)
	if out == "" || strings.Contains(out, "${") {
		return "", fmt.Errorf("the StorageClass %q: parameter %s: %q names no Secret; ${pvc.name}, ${pvc.namespace} and "+
			"${pv.name} are replaced in it", v.Class, parameter, value)
	}
	return out, nil
}
