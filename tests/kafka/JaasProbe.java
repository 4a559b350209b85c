import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Reads one sasl.jaas.config a line, in base64, and answers with its options (in base64, by name) or "refused". */
public class JaasProbe {
    public static void main(String[] arguments) throws Exception {
        BufferedReader texts = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = texts.readLine(); line != null; line = texts.readLine()) {
            answers.append("= ").append(answer(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8)));
            answers.append('\n');
        }
        System.out.print(answers);
    }

    static String answer(String text) {
        try {
            var context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            var options = context.configurationEntries().get(0).getOptions();
            StringBuilder found = new StringBuilder("read");
            for (var option : new TreeMap<String, Object>(options).entrySet())
                found.append(' ').append(encoded(option.getKey())).append('=').append(encoded(option.getValue()));
            return found.toString();
        } catch (IllegalArgumentException | NullPointerException refused) { // the latter of a name that is a number
            return "refused";
        }
    }

    static String encoded(Object text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(text.toString().getBytes(StandardCharsets.UTF_8));
    }
}
