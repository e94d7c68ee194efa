/** The service file and the image's recipe fit the program; what would not is told. */
import assert from "node:assert/strict";
import { dockerProblems, unitProblems } from "../scripts/check_packaging.ts";
import { repoDir } from "./shared.ts";

Deno.test("packaging fits the program", () => {
  const unit = Deno.readTextFileSync(`${repoDir}packaging/bloomery.service`);
  const docker = Deno.readTextFileSync(`${repoDir}packaging/Dockerfile`);
  assert.deepEqual(unitProblems(unit), []);
  assert.deepEqual(dockerProblems(docker), []);
  const told = (problems: string[], what: RegExp) => assert.ok(problems.some((p) => what.test(p)), problems.join("\n"));
  told(unitProblems(unit.replace("--config", "--confg")), /ExecStart: .*--confg/);
  told(unitProblems(unit.replace("Restart=", "Restarts=")), /\[Service\] has no Restarts/);
  told(unitProblems(unit.replace("-HUP", "-INT")), /sends no SIGHUP/);
  told(unitProblems(unit.replace("/usr/local/bin/bloomery", "bloomery")), /expected an absolute path/);
  told(dockerProblems(docker.replace("--models-dir", "--modelsdir")), /CMD: .*--modelsdir/);
  told(dockerProblems(docker.replace("0.1.0", "9.9.9")), /does not name the tarball/);
  told(dockerProblems(docker.replace('ENTRYPOINT ["bloomery"]', "ENTRYPOINT bloomery")), /ENTRYPOINT is no list/);
  told(dockerProblems(docker.replace("EXPOSE", "EXPOZE")), /no instruction/);
});
