// One record with all that is known of it. Everything is shown as text; tokens of JSON are coloured by their kind.
export default {
  template: `
    <aside v-if="record" class="record-panel" data-testid="record-details" aria-label="Record">
      <header>
        <h2>{{ record.place ? "Partition " + record.partition + ", offset" : "Offset" }} {{ record.offsetText }}</h2>
        <span v-if="record.tag" class="tag" :class="record.kind">{{ record.tag }}</span>
        <span class="room"></span>
        <button type="button" class="quiet-button" @click="copy('link', location())">{{ said('link', 'Copy link') }}</button>
        <button v-if="canResend && record.kind !== 'marker'" type="button" class="quiet-button" data-testid="resend" aria-haspopup="dialog"
                @click="$emit('resend')">Send again …</button>
        <button type="button" class="quiet-button close" data-testid="close-record" aria-label="Close (Esc)"
                @click="$emit('close')">✕</button>
      </header>
      <dl class="facts">
        <div v-for="fact in record.facts" :key="fact[0]"><dt>{{ fact[0] }}</dt><dd :title="fact[2]">{{ fact[1] }}</dd></div>
      </dl>
      <section v-for="part in record.parts" :key="part.name">
        <div class="part-head">
          <h3>{{ part.title }}</h3><span class="quiet">{{ part.about }}</span><span class="room"></span>
          <span v-if="part.forms.length > 1" class="forms" role="group" :aria-label="'Show ' + part.name + ' as'">
            <button v-for="form in part.forms" :key="form" type="button" :aria-pressed="form === part.form"
                    @click="$emit('form', { part: part.name, form })">{{ form }}</button></span>
          <button v-if="part.copy" type="button" class="quiet-button" :data-testid="'copy-' + part.name"
                  @click="copy(part.name, part.copy)">{{ said(part.name, 'Copy') }}</button>
          <a v-if="part.find" class="quiet-button" :href="part.find">Find</a>
        </div>
        <p v-if="part.schema" class="schema-line" :data-testid="'schema-' + part.name"><span class="quiet">Schema</span>
          <a v-if="part.schemaPath" :href="part.schemaPath">{{ part.schema }}</a><span v-else>{{ part.schema }}</span></p>
        <p v-if="part.reason" class="tone warn" :data-testid="'reason-' + part.name">{{ part.reason }}</p>
        <pre :class="[part.form, part.name]" :data-testid="'full-' + part.name" tabindex="0"><template
          v-for="token in part.tokens"><span v-if="token[0] !== 'plain'" :class="'json-' + token[0]">{{ token[1] }}</span
          ><template v-else>{{ token[1] }}</template></template></pre>
        <button v-if="part.more" type="button" class="quiet-button more" data-testid="more"
                @click="$emit('more', part.name)">{{ part.more }}</button>
        <p v-if="part.note" class="quiet">{{ part.note }}</p>
      </section>
      <section v-if="record.headers.length">
        <div class="part-head"><h3>Headers</h3><span class="quiet">{{ record.headersAbout }}</span></div>
        <table class="headers-table" data-testid="headers"><tbody>
          <tr v-for="(header, place) in record.headers" :key="place">
            <th scope="row">{{ header[0] }}</th><td :class="header[2]">{{ header[1] }}</td></tr>
        </tbody></table>
      </section>
    </aside>`,
  props: { record: Object, canResend: Boolean },
  emits: ["close", "form", "more", "resend"],
  data: () => ({ copied: null }),
  methods: {
    said(what, label) {
      return this.copied?.what === what ? this.copied.label : label;
    },
    location() {
      return window.location.href;
    },
    async copy(what, text) {
      this.copied = { what, label: (await duralog.copy(text)) ? "Copied" : "Not copied" };
      setTimeout(() => (this.copied = null), 1200);
    },
  },
};
